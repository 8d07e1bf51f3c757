"""`verigrad data check`: find what is wrong with a data set before a GPU waits for it."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from grpo.commands.options import is_config, read_options
from grpo.commands.preview import add_preview
from grpo.config import load_config
from grpo.config.data import ColumnsConfig, DataConfig
from grpo.data.check import Repeat, SetReport, check_sets
from grpo.data.problems import load_problems
from grpo.inputs import ProblemSets, find_verifier_options, load_problem_sets
from verifiers.errors import UserError
from verifiers.golds import SOLUTION_COLUMN
from verifiers.problem import Problem

_DESCRIPTION = """\
Judge every reference of a data set against itself, where it must be right, and against a twin that
differs in a number, where it must be wrong. Reports the kinds of reference, rows that cannot be
read, repeated prompts, held-out prompts that are also trained on, and references that other
trainers would read as another value because they pass them without a box.
"""
_EXAMPLES = """\
examples:
  verigrad data check configs/quickstart.yaml
  verigrad data check configs/quickstart.yaml verifiers.math.gold_digits=false --json
  verigrad data check rows.jsonl --verifier math --prompt-column question --answer-after '####'
  verigrad data check rows.jsonl --option extraction=answer_tag --max-bad 0.01

exit status: 0 when no set has a larger share of bad references than --max-bad; 1 otherwise;
2 for a mistake in the command or its input.
"""
_REFERENCE_CHARS = 60


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `data` to the command line."""
    parser = subparsers.add_parser(
        "data",
        help="check a data set before training on it",
        description="Work with data sets.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    add_preview(actions)
    check = actions.add_parser(
        "check",
        help="judge every reference against itself and against a wrong twin",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    check.add_argument("input", help="a configuration (.yaml), a data file or a hub id")
    check.add_argument(
        "overrides", nargs="*", metavar="key=value", help="overrides of a configuration"
    )
    check.add_argument(
        "--verifier", help="of rows that name none themselves (default: math; data files only)"
    )
    check.add_argument("--prompt-column", help="default: prompt (data files only)")
    check.add_argument("--gold-column", help="default: answer (data files only)")
    check.add_argument(
        "--answer-after", help="keep what follows this text in the gold column (data files only)"
    )
    check.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="option of the verifier; may be repeated (data files only)",
    )
    check.add_argument(
        "--solution-column",
        default=SOLUTION_COLUMN,
        metavar="NAME",
        help="column with an answer or program known to be right, for `regex`, `json_schema`, "
        f"`countdown` and `code` (default: {SOLUTION_COLUMN})",
    )
    check.add_argument(
        "--max-bad",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="share of bad references that a set may have, from 0 to 1 (default: 0)",
    )
    check.add_argument(
        "--show", type=int, default=5, metavar="N", help="rows named for each finding (default: 5)"
    )
    check.add_argument("--json", action="store_true", help="print everything as one JSON object")
    check.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command; its exit status.

    Raises:
        UserError: The arguments, the configuration or the data are wrong.
    """
    if not 0 <= args.max_bad <= 1:
        raise UserError(f"--max-bad is a share from 0 to 1, not {args.max_bad:g}")
    sets = _load_config_sets(args) if is_config(args.input) else _load_file_set(args)
    reports = check_sets(*sets, solution_column=args.solution_column)
    failed = [report.name for report in reports if report.bad_share > args.max_bad]
    if args.json:
        found = {report.name: _write_report(report) for report in reports}
        print(json.dumps({"sets": found, "failed": failed}, indent=2, ensure_ascii=False))
    else:
        for report in reports:
            _print_report(report, args.show)
    return 1 if failed else 0


_Sets = tuple[ProblemSets, ProblemSets, Mapping[str, Mapping[str, Any]]]


def _load_config_sets(args: argparse.Namespace) -> _Sets:
    for option in ("verifier", "prompt_column", "gold_column", "answer_after", "option"):
        if getattr(args, option):
            name = f"--{option.replace('_', '-')}"
            raise UserError(
                f"{name} is for data files; a configuration says it itself (change it with "
                "key=value)"
            )
    config, _ = load_config(args.input, args.overrides)
    train_sets, eval_sets = load_problem_sets(config)
    problems = [p for sets in (train_sets, eval_sets) for rows in sets.values() for p in rows]
    return train_sets, eval_sets, find_verifier_options(config, problems)


def _load_file_set(args: argparse.Namespace) -> _Sets:
    if args.overrides:
        raise UserError(
            f"{args.overrides[0]!r} overrides a configuration (.yaml), and {args.input!r} is none; "
            "for a data file use --option and the --...-column options"
        )
    columns = {"prompt": args.prompt_column, "answer": args.gold_column or "answer"}
    data = DataConfig(
        path=args.input,
        verifier=args.verifier or "math",
        answer_after=args.answer_after,
        columns=ColumnsConfig(**{name: value for name, value in columns.items() if value}),
    )
    problems = load_problems(data)
    options = read_options(args.option)
    used = {problem.verifier for problem in problems}
    own = {name: options if name == data.verifier else {} for name in sorted(used)}
    return {data.label: problems}, {}, own


def _write_report(report: SetReport) -> dict[str, Any]:
    return {
        "rows": len(report.checks),
        "tried": sum(check.tried for check in report.checks),
        "kinds": report.kinds,
        "bad_share": report.bad_share,
        "bad": [
            _name_row(check.problem) | {"fault": check.fault, "detail": check.detail}
            for check in report.bad
        ],
        "misread_risk": [
            _name_row(problem) | {"reading": reading} for problem, reading in report.misread
        ],
        "repeated_prompts": [_write_repeat(repeat) for repeat in report.repeats],
        "held_out_prompts_in_training": [_write_repeat(leak) for leak in report.leaks],
    }


def _name_row(problem: Problem) -> dict[str, Any]:
    return {"id": problem.id, "source": problem.source, "reference": problem.reference}


def _write_repeat(repeat: Repeat) -> dict[str, str]:
    return {"source": repeat.source, "first": repeat.first}


def _print_report(report: SetReport, show: int) -> None:
    tried = sum(check.tried for check in report.checks)
    print(f"{report.name}: {len(report.checks)} rows, {tried} references tried out")
    for kind, count in report.kinds.items():
        print(f"{count:9d}  {kind}")
    faults = Counter(str(check.fault) for check in report.bad)
    summary = ", ".join(f"{count} {fault}" for fault, count in faults.items()) or "none"
    print(f"  bad references: {len(report.bad)} ({report.bad_share:.2%}; {summary})")
    _print_rows([f"{_place(c.problem)}: {c.fault}: {c.detail}" for c in report.bad], show)
    print(f"  read otherwise where passed without a box: {len(report.misread)}")
    readings = {"other": "another value", "unread": "not read"}
    _print_rows([f"{_place(p)}: {readings[reading]}" for p, reading in report.misread], show)
    print(f"  repeated prompts: {len(report.repeats)}")
    _print_rows([f"{r.source} repeats {r.first}" for r in report.repeats], show)
    if report.leaks:
        print(f"  held-out prompts that are trained on: {len(report.leaks)}")
        _print_rows([f"{r.source} is {r.first}" for r in report.leaks], show)


def _place(problem: Problem) -> str:
    reference = str(problem.reference)
    cut = reference if len(reference) <= _REFERENCE_CHARS else f"{reference[:_REFERENCE_CHARS]}..."
    return f"{problem.source} {cut}"


def _print_rows(lines: Sequence[str], show: int) -> None:
    for line in lines[:show]:
        print(f"    {line}")
    if len(lines) > show:
        print(f"    and {len(lines) - show} more")
