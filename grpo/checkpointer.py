"""Saves a run: the learner's state and the loop's, as one checkpoint, while the run goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from grpo.checkpoints import (
    DiskFull,
    list_checkpoints,
    mark_best,
    prune_checkpoints,
    remove_leftovers,
    write_checkpoint,
)
from grpo.evaluation.scores import EvaluationResult
from grpo.learner.errors import LearnerError
from grpo.protocols import Progress
from verifiers.incident import Incident, NoteIncident


class Savable(Protocol):
    """Who has a state to save."""

    def begin_save(self, folder: Path) -> None:
        """Copy it, and begin to write the copy into a folder."""
        ...

    def finish_save(self) -> None:
        """Wait until it is written; called from another thread."""
        ...


class Stateful(Protocol):
    """A part of the loop with a state of its own."""

    def state(self) -> Mapping[str, Any]:
        """What a checkpoint keeps, as JSON."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Writing:
    progress: Progress
    done: Future[None]


class RunCheckpointer:
    """Writes checkpoints of a run; the loop waits for the copy in memory only, not for the disk.

    A full disk does not end the run: all checkpoints but the newest make room for the next, and
    what still cannot be written is noted and tried again when the next is due.

    Args:
        folder: Where they lie.
        learner: Whose weights, optimizer and generators are saved.
        keep_last: How many are kept, besides the best.
        note: Told of checkpoints that could not be written.
        parts: What else has a state, by name.
        best_metric: Metric of evaluations by which one checkpoint is kept for good.
        best_value: Its highest value so far, in a run that is gone on with.
        settle_record: Waits for what else of the steps so far is on its way to the disk, so that a
            checkpoint has all of it beside it.
    """

    def __init__(
        self,
        folder: Path,
        learner: Savable,
        *,
        keep_last: int,
        note: NoteIncident,
        parts: Mapping[str, Stateful] | None = None,
        best_metric: str | None = None,
        best_value: float | None = None,
        settle_record: Callable[[], None] = lambda: None,
    ) -> None:
        self._folder = folder
        self._learner = learner
        self._keep_last = keep_last
        self._note = note
        self._parts = parts or {}
        self._best_metric = best_metric
        self._best_value = best_value
        self._settle_record = settle_record
        self._writer = ThreadPoolExecutor(max_workers=1)
        self._writing: _Writing | None = None
        self._unsaved: Progress | None = None
        self._saved_step: int | None = None
        remove_leftovers(folder)

    def save(self, progress: Progress) -> None:
        """Begin to write a checkpoint, once the one before is written."""
        self.settle()
        copied = Progress(**asdict(progress))
        try:
            self._begin(copied)
        except DiskFull as error:
            self._make_room(copied, error)

    def consider(self, progress: Progress, result: EvaluationResult) -> None:
        """Keep this step's checkpoint for good, where it is the best so far.

        Args:
            progress: Where the run stands; saved if it is not.
            result: Evaluation of the policy as it is.
        """
        value = result.metrics.get(self._best_metric or "")
        if value is None or (self._best_value is not None and value <= self._best_value):
            return
        if self._saved_step != progress.step:
            self.save(progress)
        self.settle()
        if (self._folder / f"checkpoint-{progress.step}").is_dir():
            self._best_value = value
            mark_best(self._folder, progress.step)

    def settle(self) -> None:
        """Wait until what is being written is whole, or known to have failed."""
        try:
            self._settle_checkpoint()
        finally:
            self._settle_record()

    def _settle_checkpoint(self) -> None:
        writing, self._writing = self._writing, None
        if writing is None:
            return
        try:
            writing.done.result()
        except DiskFull as error:
            self._make_room(writing.progress, error)
        except LearnerError as error:
            # The loop hears of it as well, at its next call, and brings the learner back.
            self._tell(writing.progress, error, "not written")

    def finish(self) -> None:
        """Have everything on disk, trying again what could not be written before.

        Raises:
            DiskFull: It still cannot.
        """
        self.settle()
        unsaved, self._unsaved = self._unsaved, None
        if unsaved is not None:
            try:
                self._begin(unsaved)
                assert self._writing is not None
                self._writing.done.result()
            except DiskFull:
                self._unsaved = unsaved
                raise
            finally:
                self._writing = None

    def _begin(self, progress: Progress) -> None:
        state = asdict(progress) | {
            "parts": {name: part.state() for name, part in self._parts.items()}
        }
        with ExitStack() as stack:
            folder = stack.enter_context(
                write_checkpoint(
                    self._folder, step=progress.step, state=state, keep_last=self._keep_last
                )
            )
            self._learner.begin_save(folder)
            rest = stack.pop_all()
        self._saved_step = progress.step
        self._writing = _Writing(progress=progress, done=self._writer.submit(self._end, rest))

    def _end(self, rest: ExitStack) -> None:
        with rest:
            self._learner.finish_save()
        self._unsaved = None

    def _make_room(self, progress: Progress, error: DiskFull) -> None:
        room = len(list_checkpoints(self._folder)) > 1
        self._tell(progress, error, "older ones removed" if room else "not written")
        self._unsaved = progress
        if room:
            prune_checkpoints(self._folder, keep_last=1)

    def _tell(self, progress: Progress, error: Exception, action: str) -> None:
        self._note(
            Incident(
                stage="checkpoint",
                worker=f"checkpoint of step {progress.step}",
                cause=str(error),
                action=action,
            )
        )
