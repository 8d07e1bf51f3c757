"""The containers of one machine that run test code: none is started before a test needs one."""

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

# Test code is large at times, and is run with its libraries.
MEMORY_MB = 2048


class JudgePool:
    """Runs test programs and checkers; never a program under test.

    Its containers are set up like those for programs, whose limits have been proven at start.

    Args:
        options: Of the pool that runs the programs.
    """

    def __init__(self, options: SandboxOptions) -> None:
        limits = dataclasses.replace(options.limits, memory_mb=MEMORY_MB)
        self._options = dataclasses.replace(options, limits=limits, spares=0, for_tests=True)
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
