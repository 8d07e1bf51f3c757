"""Saves a run: the learner's state and the loop's, as one checkpoint."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from grpo.checkpoints import write_checkpoint
from grpo.protocols import Progress


class Savable(Protocol):
    """Who has a state to save."""

    def save(self, folder: Path) -> None:
        """Write it into a folder."""
        ...


class RunCheckpointer:
    """Writes checkpoints of a run.

    Args:
        folder: Where they lie.
        learner: Whose weights, optimizer and generators are saved.
        keep_last: How many are kept.
    """

    def __init__(self, folder: Path, learner: Savable, *, keep_last: int) -> None:
        self._folder = folder
        self._learner = learner
        self._keep_last = keep_last

    def save(self, progress: Progress) -> None:
        """Write a whole checkpoint, or none."""
        with write_checkpoint(
            self._folder, step=progress.step, state=asdict(progress), keep_last=self._keep_last
        ) as folder:
            self._learner.save(folder)
