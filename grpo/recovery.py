"""Brings the learner back after its ranks are lost: anew from the last checkpoint, by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from grpo.checkpoints import latest_checkpoint
from grpo.learner.errors import LearnerLost
from grpo.ledger import PromptLedger
from grpo.protocols import Progress, Publisher
from grpo.restarts import RestartBudget
from grpo.resuming import read_progress, restore_parts
from grpo.run_directory import RunDirectory
from verifiers.incident import Incident, NoteIncident


class Restartable(Protocol):
    """The learner's ranks."""

    def restart(self, timeout_s: float) -> None:
        """Start anew, with the policy that the run began with."""
        ...

    def load(self, folder: Path) -> int:
        """Go on from a checkpoint."""
        ...


class LearnerRecovery:
    """Restarts the learner, and takes the run back to where it can go on from.

    Steps after the last checkpoint are made again, from the same problems and seeds; what was kept
    of them is forgotten first, so that none counts twice.

    Args:
        learner: Its ranks.
        ledger: Set back with it.
        publisher: Puts its weights into the engines again.
        directory: The run's, with its checkpoints.
        probe: A text to prove the weights on.
        max_restarts: Within an hour.
        start_timeout_s: Longest time until the ranks are up.
        settle: Waits for the checkpoint that is being written.
        note: Told what was lost.
        warn: Told of damaged checkpoints that are passed over.
    """

    def __init__(
        self,
        *,
        learner: Restartable,
        ledger: PromptLedger,
        publisher: Publisher,
        directory: RunDirectory,
        probe: Sequence[int],
        max_restarts: int,
        start_timeout_s: float,
        settle: Callable[[], None],
        note: NoteIncident,
        warn: Callable[[str], None],
    ) -> None:
        self._learner = learner
        self._ledger = ledger
        self._publisher = publisher
        self._directory = directory
        self._probe = probe
        self._budget = RestartBudget(max_restarts)
        self._start_timeout_s = start_timeout_s
        self._settle = settle
        self._note = note
        self._warn = warn

    def recover(self, progress: Progress, error: LearnerLost) -> None:
        """Have a learner again, and set the run's progress back to what it holds.

        One that dies again while it starts is started once more: Ray notices late that a node is
        lost, and until then places new actors there.

        Raises:
            LearnerLost: It was restarted too often.
        """
        # The step in hand is made again too.
        in_hand = 1
        while self._budget.take():
            try:
                self._go_back(progress, error, in_hand)
            except LearnerLost as again:
                error, in_hand = again, 0
            else:
                return
        raise error

    def _go_back(self, progress: Progress, error: LearnerLost, in_hand: int) -> None:
        self._settle()
        checkpoint = latest_checkpoint(self._directory.checkpoints, self._warn)
        target = read_progress(checkpoint) if checkpoint else Progress()
        self._note(
            Incident(
                stage="learner",
                worker="learner",
                cause=str(error),
                action=f"restarted from step {target.step}",
                num_redone=progress.step + in_hand - target.step,
                stack=error.stack,
            )
        )
        progress.step, progress.policy_version = target.step, target.policy_version
        progress.num_drawn = target.num_drawn
        self._ledger.restore({})
        self._learner.restart(self._start_timeout_s)
        if checkpoint:
            restore_parts(checkpoint, {"ledger": self._ledger})
            self._learner.load(checkpoint)
        self._publisher.publish(progress.policy_version, self._probe)
        self._directory.forget_after(progress.step)
