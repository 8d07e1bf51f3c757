"""Containers of one machine that are started with the first job that needs them."""

from __future__ import annotations

import dataclasses
import threading

from sandbox.containers import start_container
from sandbox.engine import Engine
from sandbox.errors import SandboxUnavailable
from sandbox.options import SandboxOptions
from sandbox.pool import SandboxPool
from sandbox.result import ExecResult, InfraCause, Job, infra_result
from sandbox.unsafe import start_process

# Of test code, which is large at times and is run with its libraries, and the most that a problem
# may ask for on behalf of the programs that solve it.
LARGE_MEMORY_MB = 2048


class OnDemandPool:
    """A pool that is opened by its first job.

    Its containers are set up like those of the pool whose limits have been proven at start.

    Args:
        options: Its settings.
    """

    def __init__(self, options: SandboxOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._pool: SandboxPool | None = None

    def run(self, job: Job) -> tuple[ExecResult, ...]:
        """Run a job; see `SandboxPool.run`."""
        try:
            pool = self._started()
        except SandboxUnavailable as error:
            return (infra_result(InfraCause.UNAVAILABLE, str(error)),) * job.num_runs
        return pool.run(job)

    def close(self) -> None:
        """Remove the containers."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def _started(self) -> SandboxPool:
        with self._lock:
            if self._pool is None:
                self._pool = self._open()
            return self._pool

    def _open(self) -> SandboxPool:
        options = self._options
        if options.backend != "docker":
            return SandboxPool(lambda: start_process(options), options)
        engine = Engine()
        create_lock = threading.Lock()
        return SandboxPool(
            lambda: start_container(engine, options, create_lock), options, on_close=engine.close
        )


def pool_for_tests(options: SandboxOptions) -> OnDemandPool:
    """Runs test programs and checkers; never a program under test.

    Args:
        options: Of the pool that runs the programs.
    """
    options = dataclasses.replace(options, spares=0, for_tests=True)
    return OnDemandPool(_with_memory(options, LARGE_MEMORY_MB))


def pool_for_large_programs(options: SandboxOptions) -> OnDemandPool:
    """Runs the programs whose problems ask for more memory than others get, one at a time.

    Args:
        options: Of the pool that runs the others.
    """
    options = dataclasses.replace(options, pool_size=1, spares=0)
    return OnDemandPool(_with_memory(options, LARGE_MEMORY_MB))


def _with_memory(options: SandboxOptions, memory_mb: int) -> SandboxOptions:
    limits = dataclasses.replace(options.limits, memory_mb=memory_mb)
    return dataclasses.replace(options, limits=limits)
