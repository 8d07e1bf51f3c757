"""`verigrad eval`: pass@k of a policy on the held-out sets of a configuration."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from grpo.config import RunConfig
from grpo.console import Console
from grpo.paths import find_model
from grpo.score_tables import describe_samples, make_evaluation_table
from grpo.targets import Target, find_target, load_target, resolve_evaluation
from verifiers.errors import UserError

_DESCRIPTION = """\
Sample the held-out problems of a configuration (`evaluation.data`), verify the answers, and print
pass@k with 95 % intervals. CONFIG may also be a run's folder: then its own configuration and its
newest checkpoint count. The same command goes on with an evaluation that was interrupted.
"""
_EXAMPLES = """\
examples:
  verigrad eval configs/quickstart.yaml
  verigrad eval runs/quickstart evaluation.num_samples=16 evaluation.k=[1,4,16]
  verigrad eval configs/eval/humaneval.yaml model=path/to/model --json
  verigrad eval configs/quickstart.yaml --target embedded:quickstart --target runs/quickstart
  verigrad eval configs/eval/gsm8k.yaml model=gpt served.base_url=http://localhost:8000/v1

exit status: 0 when every set has a score; 1 when one has none, or a part failed; 2 for a mistake in
the command or its input.
"""


def add_parser(subparsers: Any) -> None:
    """Add `eval` to the command line."""
    parser = subparsers.add_parser(
        "eval",
        help="measure pass@k on held-out problems",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("config", help="YAML file, or a run's folder")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="overrides of the file")
    parser.add_argument(
        "--output",
        metavar="FOLDER",
        help="where scores and completions are written, with a number added if a finished "
        "evaluation is there; by default a folder in evaluations/ of the run, or in evaluations/ "
        "here",
    )
    parser.add_argument(
        "--target",
        action="append",
        metavar="MODEL",
        help="evaluate this in place of `model`: a model's folder or hub id, a run's folder, one "
        "of its checkpoints, or a LoRA adapter's folder; may be repeated",
    )
    parser.add_argument(
        "--completions",
        metavar="FILE",
        help="judge these completions in place of sampling any: JSONL of problem_id and "
        "completion, or a sample file of EvalPlus, lm-eval or lighteval; `model` is then a name",
    )
    parser.add_argument("--json", action="store_true", help="print the scores as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    console = Console(to_stderr=args.json)
    jobs = _resolve(args, console)
    completions = Path(args.completions) if args.completions else None
    if completions is not None and not completions.is_file():
        raise UserError(f"There is no file {args.completions!r} of completions.")
    from grpo.evaluating import run_evaluation

    results = []
    with console:
        for config, output in jobs:
            result, file = run_evaluation(config, console, output, completions)
            results.append(result)
            if not args.json:
                console.table(make_evaluation_table(result))
                for line in (line for score in result.sets for line in describe_samples(score)):
                    console.line(line)
                console.line(f"written to {file}")
    if args.json:
        shown = [result.model_dump(mode="json") for result in results]
        json.dump(shown[0] if args.target is None else shown, sys.stdout, indent=2)
        sys.stdout.write("\n")
    return int(any(not score.pass_at_k for result in results for score in result.sets))


def _resolve(args: argparse.Namespace, console: Console) -> list[tuple[RunConfig, Path]]:
    """A configuration and an output folder for each target."""
    if args.target is None:
        config, home = resolve_evaluation(args.config, args.overrides, warn=console.line)
        return [(config, Path(args.output or home))]
    folder = Path(args.config)
    file = str(folder / "config.yaml") if folder.is_dir() else args.config
    return [_make_job(args, file, find_target(name, warn=console.line)) for name in args.target]


def _make_job(args: argparse.Namespace, file: str, target: Target) -> tuple[RunConfig, Path]:
    config, _ = load_target(file, target, args.overrides)
    if config.served.needs_tokenizer and args.completions is None:
        find_model(config.model)  # told now, and not after the targets before it
    return config, Path(args.output or f"evaluations/{config.run_name}") / target.label
