"""A learner that shares its GPUs with the engines: they sleep while it works."""

from __future__ import annotations

from typing import Protocol

from grpo.protocols import Learner, Publisher, Update
from grpo.values import Batch


class Sleepers(Protocol):
    """Engines that can give their memory back."""

    @property
    def policy_version(self) -> int:
        """Of the policy that they serve."""
        ...

    def sleep(self) -> bool:
        """Give the memory of weights and KV cache back; no request may be under way.

        Returns:
            Whether all of them will still know their weights.
        """
        ...

    def wake(self) -> None:
        """Take the memory again."""
        ...


class TurnTakingLearner:
    """Has the engines asleep during an update, so that its GPUs are the learner's alone.

    Args:
        learner: Does the work.
        engines: On the same GPUs, and idle whenever there is an update.
        publisher: Gives engines that forgot their weights the learner's again.
    """

    def __init__(self, learner: Learner, engines: Sleepers, publisher: Publisher) -> None:
        self._learner = learner
        self._engines = engines
        self._publisher = publisher

    def update(self, batch: Batch) -> Update:
        """As `Learner.update`."""
        remembered = self._engines.sleep()
        try:
            report = self._learner.update(batch)
        finally:
            self._engines.wake()
        if report.skipped and not remembered:
            # Otherwise the loop pushes the new weights, as after every update.
            probe = batch.samples[0]
            self._publisher.publish(
                self._engines.policy_version, (*probe.prompt_ids, *probe.completion_ids)
            )
        return report
