"""The containers of one machine, shared by all threads that judge programs on it."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from sandbox.breaker import CircuitBreaker
from sandbox.errors import PoolFull, SandboxError, WorkerLost
from sandbox.line import Line, Place
from sandbox.options import SandboxOptions
from sandbox.result import (
    ExecResult,
    ExecStatus,
    Flag,
    InfraCause,
    Job,
    infra_result,
)
from sandbox.runner import Runner, prove

MAX_TRIES = 3
RETRY_PAUSE_S = 0.1
LAUNCH_PAUSE_S = 0.5
# As many fresh containers may one program take down before it is held to have done it.
FATAL_DEATHS = 2

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStats:
    """Counts since the start.

    Attributes:
        jobs: Jobs answered with results.
        runs: Runs and calls in them, by status.
        lost: Tries that gave no result, by kind.
        retired: Containers taken out of service, by cause.
        launched: Containers started.
        queue_s: Seconds that jobs waited for a container, in all.
        outages: How often containers could not be had, or most of them got lost.
    """

    jobs: int
    runs: dict[str, int]
    lost: dict[str, int]
    retired: dict[str, int]
    launched: int
    queue_s: float
    outages: int


class SandboxPool:
    r"""Runs jobs from any number of threads on a fixed number of containers.

    Example:
        >>> pool = open_pool(SandboxOptions(pool_size=2))  # doctest: +SKIP
        >>> pool.run(Job(program="print(6 * 7)", inputs=(b"",)))[0].stdout  # doctest: +SKIP
        b'42\n'
        >>> pool.close()  # doctest: +SKIP
    """

    def __init__(
        self,
        launch: Callable[[], Runner],
        options: SandboxOptions,
        *,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        """Start the containers in the background.

        Args:
            launch: Starts one container; raises `WorkerLost` when it cannot.
            options: Sizes and ages.
            on_close: Called once when everything is removed.
        """
        self._launch = launch
        self._options = options
        self._on_close = on_close
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        self._line = Line(lock)
        self._idle: deque[Runner] = deque()
        self._busy: set[Runner] = set()
        self._starting = 0
        self._closed = False
        self._breaker = CircuitBreaker(patience_s=options.engine_wait_s)
        self._alone = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._queue_s = 0.0
        self._threads = ThreadPoolExecutor(options.stock + 1, thread_name_prefix="sandbox")
        with self._changed:
            self._fill()

    def run(self, job: Job) -> tuple[ExecResult, ...]:
        """Run a job; blocks while all containers are busy.

        Trouble with the machine is tried again on another container; what remains is a result of
        status `IE`, never an exception and never a verdict on the program.

        Raises:
            ValueError: The job asks for more memory than the containers have.
            PoolFull: `max_waiting` jobs wait already.
        """
        if job.limits.memory_mb > self._options.limits.memory_mb:
            raise ValueError(
                f"a job's memory_mb ({job.limits.memory_mb}) is above that of the sandbox's "
                f"containers ({self._options.limits.memory_mb}); raise limits.memory_mb there"
            )
        with self._changed:
            number = self._line.number()  # kept by a job that is made again
        results = self._try_once(job, number, fresh=False)
        deaths = 0
        for attempt in range(1, MAX_TRIES if job.repeatable else 1):
            if isinstance(results, tuple):
                return results
            deaths += results.fatal
            if deaths >= FATAL_DEATHS:
                return _blamed(job, results.detail)
            if results.cause is InfraCause.UNAVAILABLE:
                break
            time.sleep(RETRY_PAUSE_S * attempt)
            if results.cause is InfraCause.STALLED and attempt > 1:
                break
            with self._alone:  # a machine that stalls is not helped by many reruns at once
                results = self._try_once(job, number, fresh=True)
        if isinstance(results, tuple):
            return results
        if deaths + results.fatal >= FATAL_DEATHS:
            return _blamed(job, results.detail)
        return (infra_result(results.cause, results.detail),) * job.num_runs

    def stats(self) -> PoolStats:
        """Counts so far."""
        with self._changed:
            counts, queue_s = Counter(self._counts), self._queue_s
            outages = self._breaker.times_opened

        def of(group: str) -> dict[str, int]:
            return {name: number for (kind, name), number in counts.items() if kind == group}

        return PoolStats(
            jobs=counts["jobs", ""],
            runs=of("runs"),
            lost=of("lost"),
            retired=of("retired"),
            launched=counts["launched", ""],
            queue_s=queue_s,
            outages=outages,
        )

    def close(self) -> None:
        """Remove every container; jobs under way end as `IE`. Safe to call twice."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            runners = [*self._idle, *self._busy]
            self._idle.clear()
            self._changed.notify_all()
            self._line.call_all()
        for runner in runners:
            self._threads.submit(runner.close)
        self._threads.shutdown(wait=True)
        self._on_close()

    def _try_once(self, job: Job, number: int, *, fresh: bool) -> tuple[ExecResult, ...] | _Lost:
        runner = self._take(number, fresh=fresh)
        if isinstance(runner, _Lost):
            return runner
        untouched = runner.runs == 0
        try:
            results = runner.run(job)
        except WorkerLost as error:
            self._give_back(runner, retire=error.kind)
            cause = InfraCause.STALLED if error.kind == "late" else InfraCause.LOST
            self._count_job(lost=error.kind)
            logger.warning("a container was lost (%s): %s", error.kind, error)
            return _Lost(cause, str(error), fatal=untouched and error.kind == "died")
        except BaseException:
            self._give_back(runner, retire="interrupted")
            raise
        self._give_back(runner, retire=self._retirement(runner))
        sick = [one for one in results if one.infra is not None]
        if sick:
            self._count_job(lost=str(sick[0].infra))
            return _Lost(sick[0].infra or InfraCause.HARNESS, sick[0].detail)
        self._count_job(results=results)
        return results

    def _take(self, number: int, *, fresh: bool) -> Runner | _Lost:
        """Wait for a container; none is to be had once the pool is closed, or in a long outage."""
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

    def _wait_for_runner(self, place: Place, *, fresh: bool) -> Runner | _Lost:
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
                return _Lost(InfraCause.UNAVAILABLE, f"no container can be had: {refusal}")
            place.wait(1.0)
        return _Lost(InfraCause.UNAVAILABLE, "the pool is closed")

    def _retirement(self, runner: Runner) -> str | None:
        if runner.tainted is not None:
            return runner.tainted
        if runner.runs >= self._options.max_runs_per_container:
            return "runs"
        if time.monotonic() - runner.born > self._options.max_container_age_s:
            return "age"
        return None

    def _give_back(self, runner: Runner, *, retire: str | None) -> None:
        with self._changed:
            self._busy.discard(runner)
            if self._closed:
                return  # `close` has it
            if retire is None:
                self._idle.append(runner)
            else:
                self._retire(runner, retire)
            self._line.call_first()

    def _retire(self, runner: Runner, cause: str) -> None:
        """Take a container out of service; called with the lock held."""
        self._counts["retired", cause] += 1
        self._threads.submit(runner.close)
        self._fill()

    def _count_job(self, *, results: tuple[ExecResult, ...] = (), lost: str | None = None) -> None:
        with self._changed:
            if lost is None:
                self._counts["jobs", ""] += 1
                self._counts.update(("runs", str(one.status)) for one in results)
            else:
                self._counts["lost", lost] += 1
            if self._breaker.job_ended(lost=lost is not None):
                self._replace_stock()

    def _replace_stock(self) -> None:
        """Trust no container that stands by: jobs wait for new ones. Called with the lock held."""
        logger.warning("many jobs were lost: all containers are replaced")
        self._counts["retired", "breaker"] += len(self._idle)
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
            self._counts["launched", ""] += 1
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


class _Lost:
    """A try that says nothing about the program."""

    def __init__(self, cause: InfraCause, detail: str, *, fatal: bool = False) -> None:
        self.cause = cause
        self.detail = detail
        self.fatal = fatal


def _blamed(job: Job, detail: str) -> tuple[ExecResult, ...]:
    """The verdict on a program that has taken down fresh containers, one after another."""
    result = ExecResult(
        status=ExecStatus.RE,
        flags=frozenset({Flag.SV}),
        detail=f"took {FATAL_DEATHS} fresh containers down: {detail}"[:500],
        killed=True,
    )
    return (result,) * job.num_runs
