"""The weights that a run begins with, in learner and engines alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from grpo.protocols import Progress
from grpo.publisher import ProvingPublisher
from grpo.resuming import Start, read_progress
from grpo.rollout.weights import DEVICE_TRANSPORTS, Transport
from grpo.run_directory import RunDirectory


class Loadable(Protocol):
    """A learner that holds the bare model."""

    def load(self, folder: Path) -> int:
        """Go on from a checkpoint."""
        ...


def set_off(
    learner: Loadable,
    publisher: ProvingPublisher,
    start: Start | None,
    directory: RunDirectory,
    probe: tuple[int, ...],
    *,
    transport: Transport,
    say: Callable[[str], None],
) -> Progress:
    """Have learner and engines hold the weights that the run begins with, and prove it.

    Args:
        learner: With the bare model.
        publisher: Puts its weights into the engines, which have the bare model too.
        start: Where the run begins; None is with the bare model.
        directory: The run's.
        probe: A text to prove the weights on.
        transport: How weights travel.
        say: Told what the run goes on from.
    """
    if start is None:
        if transport in DEVICE_TRANSPORTS:
            # What can go wrong between two GPUs goes wrong now, and not after a step's rollouts.
            publisher.publish(0, probe)
        else:
            publisher.prove(probe)
        return Progress()
    progress = read_progress(start.checkpoint)
    learner.load(start.checkpoint)
    publisher.publish(progress.policy_version, probe)
    directory.forget_after(progress.step)
    how = "resumed" if start.directory else "forked"
    say(f"{how:10} from {start.checkpoint} after step {progress.step}")
    return progress
