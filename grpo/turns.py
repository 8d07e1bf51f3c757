"""A learner that shares its GPUs with the engines: they sleep while it works."""

from __future__ import annotations

from pathlib import Path
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

        None starts until `wake`.

        Returns:
            Whether all of them will still know their weights.
        """
        ...

    def wake(self) -> None:
        """Take the memory again."""
        ...


class LearnerRanks(Learner, Protocol):
    """A learner whose processes can be replaced."""

    def restart(self, timeout_s: float) -> None:
        """Start anew, with the policy that the run began with."""
        ...

    def load(self, folder: Path) -> int:
        """Go on from a checkpoint."""
        ...


class TurnTakingLearner:
    """Has the engines asleep during an update, so that its GPUs are the learner's alone.

    A learner that is lost in an update may still hold its memory: the engines sleep until it was
    started anew.

    Args:
        learner: Does the work.
        engines: On the same GPUs, and idle whenever there is an update.
        publisher: Gives engines that forgot their weights the learner's again.
    """

    def __init__(self, learner: LearnerRanks, engines: Sleepers, publisher: Publisher) -> None:
        self._learner = learner
        self._engines = engines
        self._publisher = publisher
        self._asleep = False

    def update(self, batch: Batch) -> Update:
        """As `Learner.update`."""
        self._asleep = True
        remembered = self._engines.sleep()
        report = self._learner.update(batch)
        self._wake()
        if report.skipped and not remembered:
            # Otherwise the loop pushes the new weights, as after every update.
            probe = batch.samples[0]
            self._publisher.publish(
                self._engines.policy_version, (*probe.prompt_ids, *probe.completion_ids)
            )
        return report

    def restart(self, timeout_s: float) -> None:
        """As `LearnerRanks.restart`; whoever calls it pushes weights afterwards."""
        self._learner.restart(timeout_s)
        if self._asleep:
            self._wake()

    def load(self, folder: Path) -> int:
        """As `LearnerRanks.load`."""
        return self._learner.load(folder)

    def _wake(self) -> None:
        self._engines.wake()
        self._asleep = False
