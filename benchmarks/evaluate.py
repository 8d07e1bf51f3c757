"""How fast stored completions are judged, and how well judging hides behind generation.

    python benchmarks/evaluate.py [--data FOLDER] [--problems N]

Completions are the four published solutions of GSM8K's test problems, judged by `math`, and the
published solution of each problem of HumanEval, judged by `code` in the sandbox. They come from a
pool that hands them out at once, and then from one that takes as long for them as judging alone
took, so that nothing but the overlap is measured. Both go through the engine that `verigrad eval`
uses.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)  # this script's folder would hide the package of the script's name

import ray  # noqa: E402

from benchmarks.math_pairs import read_gsm8k_groups  # noqa: E402
from grpo.config.data import DataConfig  # noqa: E402
from grpo.data.problems import load_problems  # noqa: E402
from grpo.evaluation.imports import Completion, StoredPool  # noqa: E402
from grpo.evaluation.sampling import sample_groups  # noqa: E402
from grpo.values import Rollout, RolloutRequest, SamplingOptions  # noqa: E402
from verifiers.fleet import VerifierFleet  # noqa: E402
from verifiers.problem import Problem  # noqa: E402
from verifiers.verdict import Status  # noqa: E402

SAMPLING = SamplingOptions(max_completion_length=1, stop_token_ids=())
NUM_WORKERS = 2
NUM_CONTAINERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Completions to judge.

    Attributes:
        title: What they are.
        problems: What they answer.
        completions: By problem id, the same number for each.
        labels: Which of them are right, by problem id.
        options: Of the one verifier that judges them.
    """

    title: str
    problems: Sequence[Problem]
    completions: Mapping[str, Sequence[Completion]]
    labels: Mapping[str, Sequence[bool]]
    options: Mapping[str, Any]

    @property
    def total(self) -> int:
        """How many completions."""
        return sum(map(len, self.completions.values()))


class PacedPool(StoredPool):
    """Hands completions out evenly over a given time, as a generating engine does.

    Args:
        completions: By problem id.
        seconds: For all of them; 0 for at once.
    """

    def __init__(self, completions: Mapping[str, Sequence[Completion]], seconds: float) -> None:
        super().__init__(completions)
        self._gap_s = seconds / sum(map(len, completions.values()))

    def generate(
        self,
        requests: Sequence[RolloutRequest],
        sampling: SamplingOptions,
        on_wait: Callable[[], None] = lambda: None,
    ) -> Generator[Rollout, None, None]:
        """As `StoredPool.generate`, each in its time."""
        begun = time.perf_counter()
        for number, rollout in enumerate(super().generate(requests, sampling, on_wait), start=1):
            time.sleep(max(0.0, begun + number * self._gap_s - time.perf_counter()))
            yield rollout


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", default=os.environ.get("VERIGRAD_DATA", "../shared/data"))
    parser.add_argument("--problems", type=int, default=1319, help="at most so many of either set")
    args = parser.parse_args()
    data = Path(args.data)
    if not data.is_dir():
        parser.error(f"there is no folder {args.data} of public data")
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=200_000_000,
        log_to_driver=False,
    )
    try:
        _print_table([read_gsm8k(data, args.problems), read_humaneval(data, args.problems)])
    finally:
        ray.shutdown()
    return 0


def read_gsm8k(data: Path, count: int) -> Stored:
    """Four models' solutions of each problem, and what the publisher says of them."""
    groups = dict(enumerate(read_gsm8k_groups(data, range(count), 1)))
    return Stored(
        title="GSM8K",
        problems=[
            Problem(id=f"p{i}", prompt="?", verifier="math", reference=group[0].gold, source=f"{i}")
            for i, group in groups.items()
        ],
        completions={
            f"p{i}": [Completion(pair.completion) for pair in group] for i, group in groups.items()
        },
        labels={f"p{i}": [pair.right for pair in group] for i, group in groups.items()},
        options={},
    )


def read_humaneval(data: Path, count: int) -> Stored:
    """The published solution of each problem, which is right."""
    file = data / "humaneval" / "HumanEval.jsonl.gz"
    problems = load_problems(
        DataConfig.model_validate({"recipe": "humaneval", "path": str(file), "limit": count})
    )
    return Stored(
        title="HumanEval",
        problems=problems,
        completions={
            p.id: [Completion(f"```python\n{p.columns['solution']}\n```")] for p in problems
        },
        labels={p.id: [True] for p in problems},
        options={"pool_size": NUM_CONTAINERS},
    )


def _print_table(sets: Sequence[Stored]) -> None:
    print("| stored solutions | judged alone, s | beside a generation as long, s | ratio | wrong |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for stored in sets:
        alone, wrong = _score(stored, seconds=0.0)
        both, wrong_again = _score(stored, seconds=alone)
        print(
            f"| {stored.title}: {stored.total} of {len(stored.problems)} problems | {alone:.2f} | "
            f"{both:.2f} | {both / alone:.2f} | {wrong + wrong_again} |",
            flush=True,
        )


def _score(stored: Stored, seconds: float) -> tuple[float, int]:
    """Wall seconds after the start, and verdicts that differ from the labels."""
    fleet = VerifierFleet(
        specs={stored.problems[0].verifier: stored.options},
        num_workers=NUM_WORKERS,
        max_in_flight=512,
        node_threads=2 * NUM_CONTAINERS,
    )
    fleet.start()
    fleet.wait_ready()
    begun = time.perf_counter()
    groups = list(
        sample_groups(
            PacedPool(stored.completions, seconds),
            fleet,
            stored.problems,
            prompts={},
            sampling=SAMPLING,
            num_samples=len(stored.completions[stored.problems[0].id]),
            seed=0,
        )
    )
    took = time.perf_counter() - begun
    fleet.close()
    wrong = sum(
        (member.verdict.status is Status.CORRECT) != right
        for group in groups
        for member, right in zip(group.members, stored.labels[group.problem.id], strict=True)
    )
    return took, wrong


if __name__ == "__main__":
    sys.exit(main())
