"""When to stop trusting the engine, and when to trust it again."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

# With more than this share of the last jobs lost, the machine is sick, and not a container.
WINDOW = 50
MIN_JOBS = 20
LOST_SHARE = 0.2


class CircuitBreaker:
    """Open while containers cannot be had, or most of them get lost; not safe between threads.

    Jobs wait for an open breaker to close for `patience_s` after it opened; those that come later
    are refused at once, until it closes.

    Args:
        patience_s: How long an absence is waited out.
        clock: Seconds that never go back.

    Example:
        >>> breaker = CircuitBreaker(patience_s=0.0)
        >>> breaker.engine_failed("no space left on device")
        >>> breaker.refusal()
        'no space left on device'
        >>> breaker.engine_works()
        >>> breaker.refusal() is None
        True
    """

    def __init__(self, *, patience_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience_s = patience_s
        self._clock = clock
        self._open_since: float | None = None
        self._why = ""
        self._lost: deque[bool] = deque(maxlen=WINDOW)
        self.times_opened = 0

    @property
    def is_open(self) -> bool:
        """Whether no container is to be trusted before it has proved itself."""
        return self._open_since is not None

    def job_ended(self, *, lost: bool) -> bool:
        """Take note of a job; True when this one opens the breaker."""
        self._lost.append(lost)
        jobs, bad = len(self._lost), sum(self._lost)
        if self.is_open or jobs < MIN_JOBS or bad <= LOST_SHARE * jobs:
            return False
        self._open(f"{bad} of the last {jobs} jobs lost their container")
        return True

    def engine_failed(self, why: str) -> None:
        """Take note that no container could be started."""
        if not self.is_open:
            self._open(why)
        self._why = why

    def engine_works(self) -> None:
        """Take note of a container that has started and, while open, done a job."""
        if self.is_open:
            self._open_since = None
            self._lost.clear()

    def refusal(self) -> str | None:
        """Why no job is taken now; None while jobs may wait, or run."""
        if self._open_since is None or self._clock() - self._open_since < self._patience_s:
            return None
        return self._why

    def _open(self, why: str) -> None:
        self._open_since = self._clock()
        self._why = why
        self.times_opened += 1
