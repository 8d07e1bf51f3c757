"""Where the loop takes each step's groups from: gathered now, or ahead of it in another thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

from grpo.ahead import keep_gathered, read_gathered
from grpo.gather import Gathered, Gatherer
from grpo.timing import Timeline

_LOOK_EVERY_S = 0.5


class RolloutSource(Protocol):
    """Gives the loop its groups."""

    def take(self, step: int, num_drawn: int) -> Gathered:
        """The groups of the next step."""
        ...

    def advance(self, step: int) -> None:
        """The loop has finished a step, and its policy is served."""
        ...

    def while_pushing(self) -> AbstractContextManager[None]:
        """What holds during a push of weights."""
        ...

    def quiet(self) -> AbstractContextManager[None]:
        """Nothing is being sampled inside."""
        ...

    def reset(self) -> None:
        """Forget what was gathered ahead; the next `take` begins anew."""
        ...

    def state(self) -> Mapping[str, Any]:
        """What was gathered ahead, for a checkpoint."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Give it out first, before anything is gathered."""
        ...


class DirectSource:
    """Gathers when it is asked: the policy that samples is the one that learns.

    Args:
        gatherer: Does it.
    """

    def __init__(self, gatherer: Gatherer) -> None:
        self._gatherer = gatherer

    def take(self, step: int, num_drawn: int) -> Gathered:
        """As `RolloutSource.take`."""
        return self._gatherer.gather(step, num_drawn)

    def advance(self, step: int) -> None:
        """Nothing is ahead that could go on."""

    def while_pushing(self) -> AbstractContextManager[None]:
        """Nothing is being sampled anyway."""
        return nullcontext()

    def quiet(self) -> AbstractContextManager[None]:
        """Nothing is being sampled anyway."""
        return nullcontext()

    def reset(self) -> None:
        """Nothing is ahead."""

    def state(self) -> Mapping[str, Any]:
        """Nothing is ahead."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Nothing was ahead: `max_staleness` is the same in both halves of a run."""


class Cancelled(Exception):
    """What is being gathered is not wanted any more."""


class CancelFlag:
    """Asks a thread to leave what it is doing."""

    def __init__(self) -> None:
        self.raised = False

    def check(self) -> None:
        """Raise `Cancelled` if that was asked for."""
        if self.raised:
            raise Cancelled


class OverlappedSource:
    """Gathers ahead of the loop, in a thread, while the learner learns.

    The groups of step s are begun once step s - 1 - `max_staleness` is finished. A step makes at
    most one policy version, so no token is older than `max_staleness` versions when it is learned
    from.

    Args:
        gatherer: Does it; only ever called from the thread.
        max_staleness: Versions that sampling may run ahead; at least 1.
        drain: Let the groups in hand be finished before weights are pushed; otherwise the
            completions in flight go on under the new policy.
        timeline: Told how long the loop waits.
        cancel: Looked at by the gatherer's collector.
        check_stop: Called while the loop waits; may raise.
    """

    def __init__(
        self,
        gatherer: Gatherer,
        *,
        max_staleness: int,
        drain: bool,
        timeline: Timeline,
        cancel: CancelFlag,
        check_stop: Callable[[], None],
    ) -> None:
        assert max_staleness > 0
        self._gatherer = gatherer
        self._max_staleness = max_staleness
        self._drain = drain
        self._timeline = timeline
        self._cancel = cancel
        self._check_stop = check_stop
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._ready: deque[Gathered | BaseException] = deque()
        self._finished = 0
        self._gathering = False
        self._num_quiet = 0

    def take(self, step: int, num_drawn: int) -> Gathered:
        """As `RolloutSource.take`, waiting until they are there."""
        with self._timeline.phase("wait_for_rollouts"), self._changed:
            if self._thread is None:
                self._finished = step - 1
                last = self._ready[-1] if self._ready else None
                next_one = (last.step + 1, last.num_drawn) if isinstance(last, Gathered) else None
                self._thread = threading.Thread(
                    target=self._run, args=next_one or (step, num_drawn), name="gather", daemon=True
                )
                self._thread.start()
            while not self._changed.wait_for(lambda: self._ready, timeout=_LOOK_EVERY_S):
                self._check_stop()
            gathered = self._ready.popleft()
        if isinstance(gathered, BaseException):
            raise gathered
        assert gathered.step == step, (gathered.step, step)
        return gathered

    def advance(self, step: int) -> None:
        """As `RolloutSource.advance`."""
        with self._changed:
            self._finished = step
            self._changed.notify_all()

    def while_pushing(self) -> AbstractContextManager[None]:
        """As `RolloutSource.while_pushing`."""
        return self.quiet() if self._drain else nullcontext()

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """As `RolloutSource.quiet`: the step in hand is finished first, and none is begun."""
        with self._changed:
            self._num_quiet += 1
            self._changed.wait_for(lambda: not self._gathering)
        try:
            yield
        finally:
            with self._changed:
                self._num_quiet -= 1
                self._changed.notify_all()

    def reset(self) -> None:
        """As `RolloutSource.reset`."""
        with self._changed:
            thread, self._thread = self._thread, None
            self._cancel.raised = True
            self._changed.notify_all()
        if thread is not None:
            thread.join()
        self._cancel.raised = False
        self._ready.clear()

    def state(self) -> Mapping[str, Any]:
        """As `RolloutSource.state`; the step in hand is begun again from it."""
        with self._changed:
            ahead = [found for found in self._ready if isinstance(found, Gathered)]
        return {"ahead": [keep_gathered(gathered) for gathered in ahead]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """As `RolloutSource.restore`."""
        assert self._thread is None, "before the first take"
        self._ready.extend(map(read_gathered, state.get("ahead", ())))

    def _run(self, step: int, num_drawn: int) -> None:
        try:
            while True:
                self._await_turn(step)
                gathered = self._gatherer.gather(step, num_drawn)
                with self._changed:
                    self._gathering = False
                    self._ready.append(gathered)
                    self._changed.notify_all()
                step, num_drawn = step + 1, gathered.num_drawn
        except BaseException as error:  # noqa: BLE001 - raised again in the loop
            with self._changed:
                self._gathering = False
                if not isinstance(error, Cancelled):
                    self._ready.append(error)
                self._changed.notify_all()

    def _await_turn(self, step: int) -> None:
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._cancel.raised
                    or (not self._num_quiet and step - 1 - self._finished <= self._max_staleness)
                )
            )
            self._cancel.check()
            self._gathering = True
