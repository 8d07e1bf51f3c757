"""`verigrad eval`: pass@k of a policy on the held-out sets of a configuration."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from grpo.config import RunConfig, load_config
from grpo.console import Console, make_score_table
from verifiers.errors import UserError

_DESCRIPTION = """\
Sample the held-out problems of a configuration (`evaluation.data`), verify the answers, and print
pass@k with 95 % intervals. CONFIG may also be a run's folder: then its own configuration and its
newest checkpoint count.
"""
_EXAMPLES = """\
examples:
  verigrad eval configs/quickstart.yaml
  verigrad eval runs/quickstart evaluation.num_samples=16 evaluation.k=[1,4,16]
  verigrad eval configs/quickstart.yaml model=path/to/model evaluation.temperature=0 --json
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
        help="where scores and completions are written, with a number added if it is there "
        "already; by default a folder in evaluations/ of the run, or in evaluations/ here",
    )
    parser.add_argument("--json", action="store_true", help="print the scores as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    console = Console(to_stderr=args.json)
    config, output = _resolve(args, console)
    from grpo.session import run_evaluation

    with console:
        result, file = run_evaluation(config, console, output)
    if args.json:
        sys.stdout.write(result.model_dump_json(indent=2) + "\n")
    else:
        console.table(make_score_table(None, result, config.seed))
        console.line(f"written to {file}")
    return 0


def _resolve(args: argparse.Namespace, console: Console) -> tuple[RunConfig, Path]:
    folder = Path(args.config)
    if not folder.is_dir():
        config, _ = load_config(args.config, args.overrides)
        output = Path(args.output or f"evaluations/{config.run_name}")
    else:
        from grpo.checkpoints import latest_checkpoint

        checkpoint = latest_checkpoint(folder / "checkpoints", warn=console.line)
        if checkpoint is None:
            raise UserError(f"The run's folder {folder} has no whole checkpoint to evaluate.")
        file = str(folder / "config.yaml")
        config, _ = load_config(file, [f"model={checkpoint / 'policy'}", *args.overrides])
        output = Path(args.output or folder / "evaluations" / checkpoint.name)
    if not config.evaluation.data:
        raise UserError(f"{args.config} has no held-out sets: evaluation.data is empty.")
    return config, output
