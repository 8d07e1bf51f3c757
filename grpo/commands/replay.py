"""`verigrad replay`: one update of a run, made again and taken apart."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grpo.learner.contributions import Contribution
    from grpo.replay import Replay

_DESCRIPTION = """\
Make one update of a run again, from its stored rollouts and the newest checkpoint before it, and
print loss, gradient norm and what each sample added. Needs neither Ray nor an engine.
"""
_EXAMPLES = """\
examples:
  verigrad replay runs/quickstart 7
  verigrad replay runs/quickstart 7 --top 5
  verigrad replay runs/quickstart 7 --json
"""


def add_parser(subparsers: Any) -> None:
    """Add `replay` to the command line."""
    parser = subparsers.add_parser(
        "replay",
        help="make one update of a run again",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", metavar="RUN", type=Path, help="the run's folder")
    parser.add_argument("step", metavar="STEP", type=int, help="which step, from 1")
    parser.add_argument(
        "--top",
        type=int,
        default=20,
        metavar="N",
        help="samples shown, those that move the policy most first; 0 shows all (default: 20)",
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command; 0 when the update comes out as it was logged, 1 when it does not."""
    from grpo.packed import to_json
    from grpo.replay import TOLERANCE, replay_step

    replay = replay_step(
        args.folder, args.step, say=lambda line: print(f"note: {line}", file=sys.stderr)
    )
    if args.json:
        json.dump(_as_json(replay), sys.stdout, indent=2, default=to_json)
        print()
    else:
        _print(replay, args.top)
    return 0 if replay.loss_difference <= TOLERANCE else 1


def _print(replay: Replay, top: int) -> None:
    print(f"step       {replay.step}")
    print(f"weights    of {replay.begun_from}, and {replay.num_replayed} updates made again")
    for name in ("loss", "grad_norm"):
        now, then = replay.metrics[name], replay.logged[name]
        print(f"{name:10} {now:.9g} now, {then:.9g} in the run, {abs(now - then):.1e} apart")
    if replay.skipped:
        print(f"skipped    {replay.skipped}")
    for index, samples in enumerate(replay.contributions, start=1):
        ranked = sorted(samples, key=lambda part: abs(part.grad_share), reverse=True)
        shown = ranked[:top] if top else ranked
        print(f"\nmini-batch {index} of {len(replay.contributions)}: {len(samples)} samples")
        print(f"{'problem':32} {'member':>6} {'tokens':>6} {'advantage':>10} ", end="")
        print(f"{'loss':>12} {'grad norm':>10} {'share':>8}")
        for part in shown:
            _print_row(part)
        if len(shown) < len(ranked):
            print(f"and {len(ranked) - len(shown)} more (--top 0 shows all)")


def _print_row(part: Contribution) -> None:
    sample = part.sample
    print(
        f"{sample.problem_id[-32:]:32} {sample.member:6} {sample.num_loss_tokens:6} "
        f"{sample.advantage:10.4f} {part.loss:12.3e} {part.grad_norm:10.3e} {part.grad_share:8.2%}"
    )


def _as_json(replay: Replay) -> dict[str, Any]:
    return {
        "step": replay.step,
        "begun_from": replay.begun_from,
        "num_replayed": replay.num_replayed,
        "metrics": dict(replay.metrics),
        "logged": dict(replay.logged),
        "loss_difference": replay.loss_difference,
        "skipped": replay.skipped,
        "samples": [
            {"mini_batch": index} | asdict(part)
            for index, samples in enumerate(replay.contributions)
            for part in samples
        ],
    }
