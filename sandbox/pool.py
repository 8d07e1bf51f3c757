"""Runs jobs on the containers of one machine, for all threads that judge programs on it."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from sandbox.errors import WorkerLost
from sandbox.options import SandboxOptions
from sandbox.result import (
    ExecResult,
    ExecStatus,
    Flag,
    InfraCause,
    Job,
    infra_result,
)
from sandbox.runner import Runner
from sandbox.stock import NoContainer, Stock

MAX_TRIES = 3
RETRY_PAUSE_S = 0.1
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
        self._options = options
        self._on_close = on_close
        self._stock = Stock(launch, options)
        self._alone = threading.Lock()
        self._counting = threading.Lock()
        self._num_jobs = 0
        self._runs: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()

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
        number = self._stock.number()
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
        stock = self._stock.counts()
        with self._counting:
            return PoolStats(
                jobs=self._num_jobs,
                runs=dict(self._runs),
                lost=dict(self._lost),
                retired=stock.retired,
                launched=stock.launched,
                queue_s=stock.queue_s,
                outages=stock.outages,
            )

    def close(self) -> None:
        """Remove every container; jobs under way end as `IE`. Safe to call twice."""
        if self._stock.close():
            self._on_close()

    def _try_once(self, job: Job, number: int, *, fresh: bool) -> tuple[ExecResult, ...] | _Lost:
        try:
            runner = self._stock.take(number, fresh=fresh)
        except NoContainer as error:
            return _Lost(InfraCause.UNAVAILABLE, str(error))
        untouched = runner.runs == 0
        try:
            results = runner.run(job)
        except WorkerLost as error:
            self._stock.give_back(runner, retire=error.kind)
            cause = InfraCause.STALLED if error.kind == "late" else InfraCause.LOST
            self._count_job(lost=error.kind)
            logger.warning("a container was lost (%s): %s", error.kind, error)
            return _Lost(cause, str(error), fatal=untouched and error.kind == "died")
        except BaseException:
            self._stock.give_back(runner, retire="interrupted")
            raise
        self._stock.give_back(runner)
        sick = [one for one in results if one.infra is not None]
        if sick:
            self._count_job(lost=str(sick[0].infra))
            return _Lost(sick[0].infra or InfraCause.HARNESS, sick[0].detail)
        self._count_job(results=results)
        return results

    def _count_job(self, *, results: tuple[ExecResult, ...] = (), lost: str | None = None) -> None:
        with self._counting:
            if lost is None:
                self._num_jobs += 1
                self._runs.update(str(one.status) for one in results)
            else:
                self._lost[lost] += 1
        self._stock.job_ended(lost=lost is not None)


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
