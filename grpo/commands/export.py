"""`verigrad export`: an evaluation in the form of lm-evaluation-harness."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from grpo.evaluation.exports import write_lm_eval
from grpo.evaluation.folder import read_result

_EXAMPLES = """\
examples:
  verigrad export evaluations/gsm8k --output exported
"""


def add_parser(subparsers: Any) -> None:
    """Add `export` to the command line."""
    parser = subparsers.add_parser(
        "export",
        help="write an evaluation as lm-evaluation-harness does",
        description="Write results.json and samples_SET.jsonl, as lm-evaluation-harness has them.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("evaluation", help="folder of `verigrad eval`, or its JSON file")
    parser.add_argument("--output", required=True, metavar="FOLDER", help="where to write")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    result, samples = read_result(args.evaluation)
    for file in write_lm_eval(result, samples, Path(args.output)):
        print(file)
    return 0
