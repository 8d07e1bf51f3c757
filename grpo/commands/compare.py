"""`verigrad compare`: what changed between evaluations, problem by problem."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from grpo.console import Console
from grpo.evaluation.comparison import SetComparison, compare_results, describe_flips
from grpo.evaluation.folder import read_result
from grpo.evaluation.plots import write_plots
from grpo.evaluation.scores import EvaluationResult
from verifiers.errors import UserError

_DESCRIPTION = """\
Set evaluations of the same problems against the first of them: paired differences of pass@k, pass^k
and maj@k with 95 % intervals and p-values, problems gained and lost, and curves of pass@k.
"""
_EXAMPLES = """\
examples:
  verigrad compare evaluations/base evaluations/tuned
  verigrad compare runs/quickstart/evaluations/step-000000.json \\
      runs/quickstart/evaluations/step-000040.json --examples 2 --plots plots
"""
_SHOWN_CHARS = 400


def add_parser(subparsers: Any) -> None:
    """Add `compare` to the command line."""
    parser = subparsers.add_parser(
        "compare",
        help="compare evaluations problem by problem",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "evaluation", nargs="+", help="folder of `verigrad eval`, or its JSON file; two or more"
    )
    parser.add_argument("--plots", metavar="FOLDER", help="write curves of pass@k there")
    parser.add_argument(
        "--examples", type=int, default=0, metavar="N", help="show N problems of each direction"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the resampling (default: 0)")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command.

    Raises:
        UserError: An evaluation cannot be read, or two have nothing in common.
    """
    if len(set(args.evaluation)) < max(2, len(args.evaluation)):
        raise UserError("compare takes at least two evaluations, and each once")
    results = {name: read_result(name) for name in args.evaluation}
    (first_name, first), *others = results.items()
    console = Console(to_stderr=args.json)
    report: dict[str, Any] = {}
    for name, second in others:
        comparisons, notes = compare_results(first[0], second[0], seed=args.seed)
        report[name] = {
            "sets": [comparison.model_dump() for comparison in comparisons],
            "differences_in_how": notes,
        }
        if not args.json:
            for note in notes:
                console.line(f"note: the two differ in {note}")
            for comparison in comparisons:
                console.table(make_table(comparison, first_name, name))
                examples = _show_examples(comparison, first[1], second[1], args.examples)
                for line in (*describe_flips(comparison), *examples):
                    console.line(line)
    if args.plots:
        plotted = {name: result for name, (result, _) in results.items()}
        _draw(plotted, Path(args.plots), args.seed, console)
    if args.json:
        json.dump({"first": first_name, "others": report}, sys.stdout, indent=2)
        print()
    return 0


def _draw(
    results: Mapping[str, EvaluationResult], folder: Path, seed: int, console: Console
) -> None:
    files = write_plots(results, folder, seed)
    for file in files:
        console.line(f"written to {file}")
    if not files:
        console.line("no curves: they need more than one sample a problem")


def make_table(comparison: SetComparison, first: str, second: str) -> Table:
    """The differences of one set."""
    table = Table(
        title=f"{comparison.name}: {second} less {first}, {comparison.num_problems} problems",
        title_justify="left",
    )
    for column in ("score", "first", "second", "difference (95 % interval)", "p"):
        table.add_column(column, justify="left" if column == "score" else "right")
    kinds = {"pass@": comparison.pass_at_k, "pass^": comparison.pass_hat_k}
    if max(comparison.maj_at_k) > 2:
        kinds["maj@"] = comparison.maj_at_k
    for kind, differences in kinds.items():
        for k, found in differences.items():
            if k == 1 and kind != "pass@":
                continue  # with one sample all three are the same
            table.add_row(
                f"{kind}{k}",
                f"{found.first:.3f}",
                f"{found.second:.3f}",
                f"{found.value:+.3f} [{found.low:+.3f}, {found.high:+.3f}]",
                f"{found.p_value:.4f}",
            )
    return table


def _show_examples(
    comparison: SetComparison, first: Path | None, second: Path | None, number: int
) -> list[str]:
    if number < 1:
        return []
    if first is None or second is None:
        return ["no examples: the samples of one evaluation are not beside its scores"]
    lines = []
    for title, names in (("gained", comparison.gained), ("lost", comparison.lost)):
        chosen = names[:number]
        before, after = _read_samples(first, chosen), _read_samples(second, chosen)
        for name in chosen:
            lines += [f"--- {title}: {name}", f"reference: {before[name][0]['reference']!s:.80}"]
            right, wrong = (after, before) if title == "gained" else (before, after)
            for kind, rows, status in (("right", right, True), ("wrong", wrong, False)):
                row = next((r for r in rows[name] if (r["status"] == "correct") == status), None)
                if row is not None:
                    lines.append(f"{kind} ({row['reason']}): {row['text'][-_SHOWN_CHARS:].strip()}")
    return lines


def _read_samples(file: Path, names: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    wanted: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if row["problem_id"] in wanted:
                wanted[row["problem_id"]].append(row)
    return wanted
