"""Saves a run: the learner's state and the loop's, as one checkpoint."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from grpo.checkpoints import DiskFull, list_checkpoints, prune_checkpoints, write_checkpoint
from grpo.protocols import Progress
from verifiers.incident import Incident, NoteIncident


class Savable(Protocol):
    """Who has a state to save."""

    def save(self, folder: Path) -> None:
        """Write it into a folder."""
        ...


class RunCheckpointer:
    """Writes checkpoints of a run.

    A full disk does not end the run: all checkpoints but the newest make room for the next, and
    what still cannot be written is noted and tried again when the next is due.

    Args:
        folder: Where they lie.
        learner: Whose weights, optimizer and generators are saved.
        keep_last: How many are kept.
        note: Told of checkpoints that could not be written.
    """

    def __init__(
        self, folder: Path, learner: Savable, *, keep_last: int, note: NoteIncident
    ) -> None:
        self._folder = folder
        self._learner = learner
        self._keep_last = keep_last
        self._note = note
        self._unsaved: Progress | None = None

    def save(self, progress: Progress) -> None:
        """Write a whole checkpoint, or none."""
        try:
            self._write(progress)
        except DiskFull as error:
            room = len(list_checkpoints(self._folder)) > 1
            self._note(
                Incident(
                    stage="checkpoint",
                    worker=f"checkpoint of step {progress.step}",
                    cause=str(error),
                    action="older ones removed, tried again" if room else "not written",
                )
            )
            if room:
                prune_checkpoints(self._folder, keep_last=1)
                self.save(progress)
            else:
                self._unsaved = Progress(**asdict(progress))

    def finish(self) -> None:
        """Write the run's last checkpoint if it could not be written before.

        Raises:
            DiskFull: It still cannot.
        """
        if self._unsaved is not None:
            self._write(self._unsaved)

    def _write(self, progress: Progress) -> None:
        with write_checkpoint(
            self._folder, step=progress.step, state=asdict(progress), keep_last=self._keep_last
        ) as folder:
            self._learner.save(folder)
        self._unsaved = None
