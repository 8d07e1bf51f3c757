"""Does one job after the other in a thread of its own, and tells its owner what failed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager


class BackgroundJobs:
    """A queue of jobs.

    Args:
        guard: Around each look at how a job, given by its name, came out: there its error is
            raised.
        most: Jobs that may be queued or under way; whoever brings one more waits.
    """

    def __init__(self, guard: Callable[[str], AbstractContextManager[None]], *, most: int) -> None:
        self._guard = guard
        self._most = most
        self._jobs: deque[tuple[str, Future[object]]] = deque()
        self._thread = ThreadPoolExecutor(max_workers=1)

    def submit(self, name: str, job: Callable[[], object]) -> None:
        """Queue a job, after a look at those that are done."""
        while self._jobs and (self._jobs[0][1].done() or len(self._jobs) >= self._most):
            self._take()
        self._jobs.append((name, self._thread.submit(job)))

    def settle(self) -> None:
        """Wait until every job is done."""
        while self._jobs:
            self._take()

    def _take(self) -> None:
        name, job = self._jobs.popleft()
        with self._guard(name):
            job.result()
