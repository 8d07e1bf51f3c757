"""The containers that stand ready: started, lent to one job at a time, and replaced."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from sandbox.breaker import CircuitBreaker
from sandbox.errors import PoolFull, SandboxError
from sandbox.line import Line, Place
from sandbox.options import SandboxOptions
from sandbox.runner import Runner, prove

LAUNCH_PAUSE_S = 0.5

logger = logging.getLogger(__name__)


class NoContainer(Exception):
    """None is to be had: the engine has been sick for long, or the stock is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StockCounts:
    """Counts since the start.

    Attributes:
        retired: Containers taken out of service, by cause.
        launched: Containers started.
        queue_s: Seconds that jobs waited for a container, in all.
        outages: How often containers could not be had, or most of them got lost.
    """

    retired: dict[str, int]
    launched: int
    queue_s: float
    outages: int


class Stock:
    """A fixed number of containers, lent in the order in which jobs came.

    The first are started in the background at once.

    Args:
        launch: Starts one container; raises `WorkerLost` when it cannot.
        options: Sizes and ages.
    """

    def __init__(self, launch: Callable[[], Runner], options: SandboxOptions) -> None:
        self._launch = launch
        self._options = options
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        self._line = Line(lock)
        self._idle: deque[Runner] = deque()
        self._busy: set[Runner] = set()
        self._starting = 0
        self._closed = False
        self._breaker = CircuitBreaker(patience_s=options.engine_wait_s)
        self._retired: Counter[str] = Counter()
        self._launched = 0
        self._queue_s = 0.0
        self._threads = ThreadPoolExecutor(options.stock + 1, thread_name_prefix="sandbox")
        with self._changed:
            self._fill()

    def number(self) -> int:
        """The number of a job that has just come; it keeps it when it is made again."""
        with self._changed:
            return self._line.number()

    def take(self, number: int, *, fresh: bool) -> Runner:
        """Wait for a container.

        Args:
            number: Of the job.
            fresh: Whether it should be one that has run little; such a job is never refused.

        Raises:
            NoContainer: There is none to wait for.
            PoolFull: `max_waiting` jobs wait already.
        """
        asked = time.monotonic()
        with self._changed:
            if not fresh and len(self._line) >= self._options.max_waiting:
                raise PoolFull(
                    f"{len(self._line)} jobs wait for {self._options.pool_size} containers; hand "
                    "in fewer at a time, or raise max_waiting"
                )
            try:
                with self._line.stand(number) as place:
                    return self._wait_for_runner(place, fresh=fresh)
            finally:
                self._queue_s += time.monotonic() - asked

    def give_back(self, runner: Runner, *, retire: str | None = None) -> None:
        """Take a container back.

        Args:
            runner: The container.
            retire: Why it can do no more jobs; by default that follows from its age and use.
        """
        with self._changed:
            self._busy.discard(runner)
            if self._closed:
                return  # `close` has it
            cause = retire or self._retirement(runner)
            if cause is None:
                self._idle.append(runner)
            else:
                self._retire(runner, cause)
            self._line.call_first()

    def job_ended(self, *, lost: bool) -> None:
        """Take note of a job, and whether it was lost with its container."""
        with self._changed:
            if self._breaker.job_ended(lost=lost):
                self._replace_all()

    def counts(self) -> StockCounts:
        """Counts so far."""
        with self._changed:
            return StockCounts(
                retired=dict(self._retired),
                launched=self._launched,
                queue_s=self._queue_s,
                outages=self._breaker.times_opened,
            )

    def close(self) -> bool:
        """Remove every container, also those that are lent; False where that was done before."""
        with self._changed:
            if self._closed:
                return False
            self._closed = True
            runners = [*self._idle, *self._busy]
            self._idle.clear()
            self._changed.notify_all()
            self._line.call_all()
        for runner in runners:
            self._threads.submit(runner.close)
        self._threads.shutdown(wait=True)
        return True

    def _wait_for_runner(self, place: Place, *, fresh: bool) -> Runner:
        while not self._closed:
            if place.first and self._idle and len(self._busy) < self._options.pool_size:
                # The most used one first, so that a fresh one stands by for the retries.
                choose = min if fresh else max
                runner = choose(self._idle, key=lambda one: one.runs)
                self._idle.remove(runner)
                if runner.alive():
                    self._busy.add(runner)
                    return runner
                # No job is to be blamed for a container that is gone.
                self._retire(runner, "gone")
                continue
            refusal = self._breaker.refusal()
            if refusal is not None and not self._busy:
                raise NoContainer(f"no container can be had: {refusal}")
            place.wait(1.0)
        raise NoContainer("the pool is closed")

    def _retirement(self, runner: Runner) -> str | None:
        if runner.tainted is not None:
            return runner.tainted
        if runner.runs >= self._options.max_runs_per_container:
            return "runs"
        if time.monotonic() - runner.born > self._options.max_container_age_s:
            return "age"
        return None

    def _retire(self, runner: Runner, cause: str) -> None:
        """Take a container out of service; called with the lock held."""
        self._retired[cause] += 1
        self._threads.submit(runner.close)
        self._fill()

    def _replace_all(self) -> None:
        """Trust no container that stands by: jobs wait for new ones. Called with the lock held."""
        logger.warning("many jobs were lost: all containers are replaced")
        self._retired["breaker"] += len(self._idle)
        while self._idle:
            self._threads.submit(self._idle.popleft().close)
        self._fill()

    def _fill(self) -> None:
        """Start what is missing; called with the lock held."""
        stock = self._options.stock
        while not self._closed and len(self._idle) + len(self._busy) + self._starting < stock:
            self._starting += 1
            self._threads.submit(self._launch_one)

    def _launch_one(self) -> None:
        try:
            runner = self._launch()
            if self._breaker.is_open:
                prove(runner)
        except SandboxError as error:
            self._launch_failed(error)
            return
        with self._changed:
            self._starting -= 1
            self._breaker.engine_works()
            self._launched += 1
            if not self._closed:
                self._idle.append(runner)
                self._line.call_first()
                return
        runner.close()

    def _launch_failed(self, error: SandboxError) -> None:
        with self._changed:
            if not self._breaker.is_open:
                logger.warning("no container could be started: %s", error)
            self._breaker.engine_failed(str(error))
            self._line.call_all()
            self._changed.wait_for(lambda: self._closed, timeout=LAUNCH_PAUSE_S)
            self._starting -= 1
            self._fill()
