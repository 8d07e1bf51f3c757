"""Gives the learner the first groups of a step while the others are still being sampled."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from grpo.assemble import BatchPolicy, assemble_batch, group_teaches
from grpo.timing import Span, Timeline
from grpo.values import ScoredGroup, TrainSample
from grpo.waits import LEARNER_TRACK


class Beginner(Protocol):
    """A learner that can begin with part of a batch."""

    @property
    def head_start_tokens(self) -> int | None:
        """How many tokens fill a micro-batch on every rank; None if a batch must be whole."""
        ...

    def learn_ahead(self, step: int, samples: Sequence[TrainSample]) -> None:
        """Begin to learn from the next samples of a step; does not wait for it."""
        ...

    def find_learned_ahead(self) -> list[float]:
        """Seconds of the calls that ended since the last look."""
        ...


class HeadStart:
    """Collects a step's groups in order, and passes them on whenever they fill micro-batches.

    Only the order of the groups says what shares a micro-batch, so the update is the same to the
    last bit with a head start and without; a batch that fits one micro-batch is passed on whole.

    Args:
        learner: Told.
        policy: How groups become a batch; an estimator that needs the whole one takes none.
        wanted: Groups with a signal that a step is made of; None if it is made of all.
        timeline: Told when the learner worked.
    """

    def __init__(
        self, learner: Beginner, *, policy: BatchPolicy, wanted: int | None, timeline: Timeline
    ) -> None:
        self._learner = learner
        self._policy = policy
        self._wanted = wanted
        self._timeline = timeline
        self.begin(0)

    def begin(self, step: int) -> None:
        """What comes now is of this step."""
        self._step = step
        self._groups: list[ScoredGroup] = []
        self._num_good = self._num_passed_on = self._num_tokens = 0

    def add(self, group: ScoredGroup) -> None:
        """Take the next group in, in the order of the draws."""
        room = self._learner.head_start_tokens
        if room is None or self._num_good == self._wanted:
            return
        self._groups.append(group)
        self._num_good += group_teaches(group, self._policy.advantage_estimator)
        self._num_tokens += sum(
            len(member.rollout.prompt_ids) + len(member.rollout.completion_ids)
            for member in group.members
        )
        if self._num_tokens > room:
            self._pass_on()

    def look(self) -> None:
        """Record what the learner has done.

        Raises:
            LearnerLost: It died.
        """
        for seconds in self._learner.find_learned_ahead():
            now = time.perf_counter()
            self._timeline.add(
                Span(track=LEARNER_TRACK, name="micro-batches", begin=now - seconds, end=now)
            )

    def _pass_on(self) -> None:
        batch, _ = assemble_batch(self._groups, step=self._step, policy=self._policy)
        fresh = batch.samples[self._num_passed_on :]
        self._num_tokens = 0
        self._num_passed_on = len(batch.samples)
        if fresh:
            self._learner.learn_ahead(self._step, fresh)
