"""`verigrad train`: a training run from a configuration."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from grpo.api import require_training
from grpo.config import RunConfig, load_config
from grpo.console import Console

_DESCRIPTION = """\
Train a policy with GRPO on verified rewards.

The configuration is one YAML file; `key=value` arguments override it (see docs/configuration.md).
Everything the run produces is in its folder, OUTPUT_DIR/RUN_NAME. Ctrl-C saves a checkpoint and
stops; --resume goes on from the newest one.
"""
_EXAMPLES = """\
examples:
  verigrad train configs/quickstart.yaml
  verigrad train configs/quickstart.yaml seed=1 beta=0.04 steps=20
  verigrad train configs/quickstart.yaml --dry-run
  verigrad train configs/quickstart.yaml --resume
  verigrad train configs/quickstart.yaml --resume runs/quickstart-2
  verigrad train configs/quickstart.yaml --fork runs/quickstart steps=80 learning_rate=1e-4
"""


def add_parser(subparsers: Any) -> None:
    """Add `train` to the command line."""
    parser = subparsers.add_parser(
        "train",
        help="train a policy",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("config", help="YAML file")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="overrides of the file")
    parser.add_argument(
        "--dry-run", action="store_true", help="check everything and print the plan; load no model"
    )
    parser.add_argument(
        "--resume",
        nargs="?",
        const="",
        metavar="RUN",
        help="go on from the newest whole checkpoint of a run's folder; by default of the newest "
        "run with this name",
    )
    parser.add_argument(
        "--fork",
        metavar="RUN_OR_CHECKPOINT",
        help="start a new run from another's newest whole checkpoint, or from one of them; its "
        "options may differ from that run's",
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command; 0 when all steps were made, 130 when the user stopped the run."""
    begun = time.perf_counter()
    config, notes = load_config(args.config, args.overrides)
    require_training(config)
    console = Console(to_stderr=args.json)
    for note in notes:
        console.line(f"note: {note}")
    if args.dry_run:
        return _dry_run(config, console)
    from grpo.session import run_training

    with console:
        complete, summary = run_training(
            config, console, resume=args.resume, fork=args.fork, begun=begun
        )
    if args.json:
        json.dump(summary, sys.stdout, indent=2)
        print()
    return 0 if complete else 130


def _dry_run(config: RunConfig, console: Console) -> int:
    from grpo.duration import resolve_duration
    from grpo.environment import find_device
    from grpo.inputs import load_inputs
    from grpo.preparation import describe, prepare

    inputs = load_inputs(config)
    config = resolve_duration(config, num_problems=inputs.num_train_problems)
    # A cluster may not be there yet, and a dry run is to work without one.
    device = find_device() if config.ray.address is None else None
    for line in describe(config, prepare(config, inputs, device)):
        console.line(line)
    if device is None:
        console.line(
            f"device     of the cluster at ray.address={config.ray.address!r}, which a dry run "
            "does not ask: what depends on it is checked when the run starts"
        )
    console.line("The configuration, the data and the verifiers are in order.")
    return 0
