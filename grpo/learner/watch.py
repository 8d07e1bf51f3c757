"""Signs of life of the learner's ranks while they work: progress, memory, and where they stand."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import RayError

from verifiers.vitals import Vitals

ASK_EVERY_S = 5.0
STACK_WAIT_S = 5.0
# Ray keeps these calls apart from the work, so that a rank answers while it works.
CONCURRENCY_GROUP = "watch"
# Another, for calls that wait for the disk.
WRITING = "writing"


class RankWatch:
    """Watches the ranks during one call.

    Args:
        actors: The ranks.
    """

    def __init__(self, actors: Sequence[Any]) -> None:
        self._actors = actors
        self._vitals: dict[int, Vitals] = {}
        self._progress: dict[int, int] = {}
        self._asked: dict[Any, int] = {}
        self._since = time.monotonic()
        self.ask()

    @property
    def idle_s(self) -> float:
        """Seconds since any rank got anything done."""
        return time.monotonic() - self._since

    def ask(self) -> None:
        """Take in what the ranks have said, and ask those again that have."""
        if self._asked:
            done, _ = ray.wait(list(self._asked), num_returns=len(self._asked), timeout=0)
            for reference in done:
                self._receive(self._asked.pop(reference), reference)
        waiting = set(self._asked.values())
        for rank, actor in enumerate(self._actors):
            if rank not in waiting:
                self._asked[actor.look.remote()] = rank

    def describe(self, rank: int) -> str:
        """The last that is known of a rank, as a sentence; empty when it never spoke."""
        self.ask()
        vitals = self._vitals.get(rank)
        return f" Last known: {vitals}." if vitals else ""

    def collect_stacks(self) -> str:
        """Where every rank stands."""
        references = [actor.describe_threads.remote() for actor in self._actors]
        ray.wait(references, num_returns=len(references), timeout=STACK_WAIT_S)
        return "\n".join(
            f"rank {rank}: {_read_stack(reference)}" for rank, reference in enumerate(references)
        )

    def _receive(self, rank: int, reference: Any) -> None:
        try:
            progress, self._vitals[rank] = ray.get(reference)
        except RayError:
            # The call that is watched ends with the same error, and names it.
            return
        if self._progress.get(rank) != progress:
            self._progress[rank] = progress
            self._since = time.monotonic()


def _read_stack(reference: Any) -> str:
    try:
        return ray.get(reference, timeout=0)
    except RayError:
        return "the process did not say"
