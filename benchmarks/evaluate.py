"""How fast stored completions are judged, and how well judging hides behind generation.

    python benchmarks/evaluate.py [--data FOLDER] [--problems N]

Completions are the four published solutions of GSM8K's test problems. They come from a pool that
hands them out at once, and then from one that takes as long for them as judging alone took, so that
nothing but the overlap is measured. Both go through the engine that `verigrad eval` uses.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)  # this script's folder would hide the package of the script's name

import ray  # noqa: E402

from benchmarks.math_pairs import Pair, read_gsm8k_groups  # noqa: E402
from grpo.evaluation.imports import StoredPool  # noqa: E402
from grpo.evaluation.sampling import sample_groups  # noqa: E402
from grpo.values import Rollout, RolloutRequest, SamplingOptions  # noqa: E402
from verifiers.fleet import VerifierFleet  # noqa: E402
from verifiers.problem import Problem  # noqa: E402
from verifiers.verdict import Status  # noqa: E402

SAMPLING = SamplingOptions(max_completion_length=1, stop_token_ids=())


class PacedPool(StoredPool):
    """Hands completions out evenly over a given time, as a generating engine does.

    Args:
        completions: By problem id.
        seconds: For all of them; 0 for at once.
    """

    def __init__(self, completions: dict[str, list[str]], seconds: float) -> None:
        super().__init__(completions)
        self._gap_s = seconds / sum(map(len, completions.values()))

    def generate(
        self, requests: Sequence[RolloutRequest], sampling: SamplingOptions
    ) -> Generator[Rollout, None, None]:
        """As `StoredPool.generate`, each in its time."""
        begun = time.perf_counter()
        for number, rollout in enumerate(super().generate(requests, sampling), start=1):
            time.sleep(max(0.0, begun + number * self._gap_s - time.perf_counter()))
            yield rollout


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", default=os.environ.get("VERIGRAD_DATA", "../shared/data"))
    parser.add_argument("--problems", type=int, default=1319)
    args = parser.parse_args()
    if not Path(args.data).is_dir():
        parser.error(f"there is no folder {args.data} of public data")
    groups = read_gsm8k_groups(Path(args.data), range(args.problems), 1)
    ray.init(
        num_cpus=2, include_dashboard=False, object_store_memory=200_000_000, log_to_driver=False
    )
    try:
        _measure(groups)
    finally:
        ray.shutdown()
    return 0


def _measure(groups: Sequence[Sequence[Pair]]) -> None:
    problems = [
        Problem(id=f"p{i}", prompt="?", verifier="math", reference=group[0].gold, source=f"f:{i}")
        for i, group in enumerate(groups)
    ]
    completions = {f"p{i}": [pair.completion for pair in group] for i, group in enumerate(groups)}
    alone, wrong = _score(groups, problems, completions, seconds=0.0)
    both, _ = _score(groups, problems, completions, seconds=alone)
    total = sum(map(len, groups))
    print(f"| {total} solutions of {len(groups)} problems | seconds | of the longer alone |")
    print("| --- | ---: | ---: |")
    print(f"| judged alone | {alone:.2f} | 1.00 |")
    print(f"| judged beside a generation of {alone:.2f} s | {both:.2f} | {both / alone:.2f} |")
    print(f"\n{wrong} verdicts differ from the published labels.")


def _score(
    groups: Sequence[Sequence[Pair]],
    problems: Sequence[Problem],
    completions: dict[str, list[str]],
    seconds: float,
) -> tuple[float, int]:
    """Wall seconds after the start, and verdicts that differ from the labels."""
    fleet = VerifierFleet(specs={"math": {}}, num_workers=2, max_in_flight=512)
    fleet.start()
    fleet.wait_ready()
    begun = time.perf_counter()
    scored = list(
        sample_groups(
            PacedPool(completions, seconds),
            fleet,
            problems,
            prompts={},
            sampling=SAMPLING,
            num_samples=len(groups[0]),
            seed=0,
        )
    )
    took = time.perf_counter() - begun
    fleet.close()
    labels = {f"p{i}": [pair.right for pair in group] for i, group in enumerate(groups)}
    wrong = sum(
        (member.verdict.status is Status.CORRECT) != right
        for group in scored
        for member, right in zip(group.members, labels[group.problem.id], strict=True)
    )
    return took, wrong


if __name__ == "__main__":
    sys.exit(main())
