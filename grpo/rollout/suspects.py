"""Groups that were in hand when engines failed: one of them may be the cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from grpo.rollout.engine import Placed
from grpo.rollout.errors import RolloutError
from verifiers.incident import Incident

# A group that was in hand when this many engines failed is sampled with no other beside it, so that
# the next failure tells whether it is the cause.
SUSPECT_AFTER = 2
MAX_TRIES = 3


class Suspects:
    """How many engines failed with each group of a call in hand."""

    def __init__(self) -> None:
        self._tries: Counter[int] = Counter()

    def blame(self, groups: Sequence[Placed]) -> tuple[list[Placed], list[Placed]]:
        """Take note of what a failed engine had; what is sampled again, and what is given up."""
        self._tries.update(group.index for group in groups)
        again = [group for group in groups if self._tries[group.index] < MAX_TRIES]
        return again, [group for group in groups if self._tries[group.index] >= MAX_TRIES]

    def engines_for(
        self, group: Placed, serving: Iterable[int], in_hand: Sequence[Collection[int]]
    ) -> list[int]:
        """Engines that may take a group: one that is suspected shares its engine with none.

        Args:
            group: To be placed.
            serving: Engines that can be asked, by their places.
            in_hand: The groups that each engine of the pool has, by its place.
        """
        if self._tries[group.index] >= SUSPECT_AFTER:
            return [place for place in serving if not in_hand[place]]
        return [
            place
            for place in serving
            if all(self._tries[index] < SUSPECT_AFTER for index in in_hand[place])
        ]

    def describe(self, group: Placed, error: RolloutError) -> Incident:
        """The incident of a group that is given up."""
        return Incident(
            stage="rollout",
            worker="pool",
            cause=f"{self._tries[group.index]} engines failed with this group, the last: {error}",
            action="given up",
            problem_ids=(group.request.problem_id,),
            num_lost=len(group.members),
        )
