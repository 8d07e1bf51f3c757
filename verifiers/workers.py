"""A pool of worker processes that can be killed.

One job in flight each, CPU time limited by the kernel.

The caller needs no signals and no timers, so a pool works from any thread, from asyncio
(`asyncio.to_thread`) and inside Ray actors.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import threading
import time
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from verifiers.errors import UserError
from verifiers.fork_client import Server, Worker
from verifiers.fork_server import WorkerSettings
from verifiers.poison import PoisonRecord

BREAKER_WINDOW_S = 60.0
BREAKER_DEATHS = 50
START_TRIES = 2


class WorkerPoolError(RuntimeError):
    """The pool cannot work at all; nothing a completion contains causes this."""


class Failure(StrEnum):
    """Why a job has no value."""

    DEADLINE = "deadline"
    MEMORY = "memory"
    RAISED = "raised"
    STALLED = "stalled"
    DIED = "died"


MACHINE_FAILURES = frozenset({Failure.STALLED, Failure.DIED})
KILLING_FAILURES = MACHINE_FAILURES | {Failure.DEADLINE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a job.

    Attributes:
        value: What the function returned, when `failure` is None.
        failure: `DEADLINE` and `MEMORY` are the job's own doing and repeat; `RAISED` is an
            exception; `STALLED` (wall fence reached without using its CPU time) and `DIED` may be
            the machine's.
        detail: Traceback or exit code, for a person.
    """

    value: Any = None
    failure: Failure | None = None
    detail: str | None = None


class WorkerPool:
    """Runs jobs in killable processes.

    Processes start with the first job. A worker that dies or is killed is replaced by a spare that
    is already warm. A job that ended its worker is not run again: the same arguments get the same
    outcome at once.

    Args:
        settings: What the workers run, and their limits.
        size: Jobs that run at the same time; further callers wait.
        num_spares: Warm workers beyond `size`.
        poison_file: JSONL file to which every job that cost a worker is appended, for a person.

    Raises:
        UserError: `size`, which verifiers call `concurrency`, is less than 1.

    Example:
        >>> pool = WorkerPool(WorkerSettings(target="math:sqrt"))
        >>> pool.run(9.0).value
        3.0
        >>> pool.close()
    """

    def __init__(
        self,
        settings: WorkerSettings,
        *,
        size: int = 1,
        num_spares: int = 1,
        poison_file: str | None = None,
    ) -> None:
        if size < 1:
            raise UserError(f"a verifier's option 'concurrency' is {size}; it must be 1 or more")
        self.settings = settings
        self._poison: PoisonRecord[Outcome] = PoisonRecord(poison_file)
        self._capacity = size + num_spares
        self._slots = threading.BoundedSemaphore(size)
        self._lock = threading.Lock()
        self._server: Server | None = None
        self._idle: deque[Worker] = deque()
        self._num_alive = 0
        self._deaths: deque[float] = deque()
        self._owner = os.getpid()
        self._closed = False

    def run(self, *arguments: Any) -> Outcome:
        """Run one job; a failure that may be the machine's is tried once more.

        Raises:
            WorkerPoolError: Workers cannot be started, die at a high rate, or the pool is closed.
        """
        payload = pickle.dumps(arguments)
        if (known := self._poison.recall(payload)) is not None:
            return known
        with self._slots:
            outcome = self._attempt(payload)
            if outcome.failure in MACHINE_FAILURES:
                outcome = self._attempt(payload)
        if outcome.failure in KILLING_FAILURES and not self._closed:
            self._note_poison(arguments, payload, outcome)
        return outcome

    def close(self) -> None:
        """End all processes; jobs in flight end as `DIED`."""
        with self._lock:
            self._closed = True
            self._drop_all()

    def _note_poison(self, arguments: tuple[Any, ...], payload: bytes, outcome: Outcome) -> None:
        if outcome.failure is not Failure.STALLED:  # which the machine's load may have caused
            self._poison.remember(payload, outcome)
        self._poison.write(
            self.settings.target,
            arguments,
            failure=str(outcome.failure),
            detail=outcome.detail or "",
        )

    def _attempt(self, payload: bytes) -> Outcome:
        worker, server = self._take()
        try:
            worker.connection.send_bytes(payload)
            if not worker.connection.poll(self.settings.wall_limit_s):
                self._discard(worker, server, kill=True)
                detail = f"no answer within {self.settings.wall_limit_s:g} s of wall time"
                return Outcome(failure=Failure.STALLED, detail=detail)
            kind, value, retire = worker.connection.recv()
        except (EOFError, OSError):
            return self._explain(self._discard(worker, server, kill=False))
        except BaseException:
            self._discard(worker, server, kill=True)
            raise
        if retire:
            self._discard(worker, server, kill=False)
        else:
            with self._lock:
                self._idle.append(worker)
        if kind == "done":
            return Outcome(value=value)
        if kind == "memory":
            return Outcome(failure=Failure.MEMORY, detail=f"{self.settings.memory_mb} MB exceeded")
        return Outcome(failure=Failure.RAISED, detail=value)

    def _explain(self, exit_code: int | None) -> Outcome:
        if exit_code == -signal.SIGPROF:
            detail = f"more than {self.settings.cpu_limit_s:g} s of CPU time"
            return Outcome(failure=Failure.DEADLINE, detail=detail)
        with self._lock:
            now = time.monotonic()
            self._deaths.append(now)
            while self._deaths[0] < now - BREAKER_WINDOW_S:
                self._deaths.popleft()
            if len(self._deaths) > BREAKER_DEATHS:
                raise WorkerPoolError(
                    f"{len(self._deaths)} workers of {self.settings.target} died within "
                    f"{BREAKER_WINDOW_S:g} s, the last with exit code {exit_code}: look for an "
                    "out-of-memory killer or a crashing extension module"
                )
        return Outcome(failure=Failure.DIED, detail=f"worker process ended with {exit_code}")

    def _take(self) -> tuple[Worker, Server | None]:
        """A ready worker; those that died while idle or while getting ready are passed over."""
        for _ in range(self._capacity + START_TRIES):
            worker, server = self._take_any()
            try:
                if not worker.ready:
                    self._await_ready(worker)
            except (EOFError, OSError):
                self._discard(worker, server, kill=True)
            except BaseException:
                self._discard(worker, server, kill=True)
                raise
            else:
                return worker, server
        raise WorkerPoolError(
            f"workers of {self.settings.target} cannot start; their own message is on standard "
            "error"
        )

    def _take_any(self) -> tuple[Worker, Server | None]:
        """An idle or a new worker, with another on its way when this was the last."""
        with self._lock:
            if self._closed:
                raise WorkerPoolError("the pool is closed")
            if self._owner != os.getpid():  # a fork of the caller: the processes are its parent's
                self._owner, self._server, self._num_alive = os.getpid(), None, 0
                self._idle.clear()
            worker = self._idle.pop() if self._idle else self._spawn()
            while not self._idle and self._num_alive < self._capacity:
                self._idle.appendleft(self._spawn())
            return worker, self._server

    def _spawn(self) -> Worker:
        if self._server is None:
            self._server = Server.start(self.settings)
        try:
            worker = self._server.fork()
        except OSError:
            self._drop_all()
            self._server = Server.start(self.settings)
            worker = self._server.fork()
        self._num_alive += 1
        return worker

    def _await_ready(self, worker: Worker) -> None:
        limit = self.settings.start_limit_s
        for _ in range(2):  # its process id, then what setting up came to
            if not worker.connection.poll(limit):
                raise WorkerPoolError(f"a worker was not ready within {limit:g} s")
            message = worker.connection.recv()
            if isinstance(message, int):
                worker.pid = message
            elif message is not None:
                raise WorkerPoolError(f"a worker of {self.settings.target} failed: {message}")
        worker.ready = True

    def _discard(self, worker: Worker, server: Server | None, *, kill: bool) -> int | None:
        """Let a worker go; its exit code, None when it cannot be known."""
        worker.connection.close()
        exit_code = None
        try:
            if worker.pid and server is not None:
                # Unreaped, so the id cannot have passed to another process yet.
                if kill:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(worker.pid, signal.SIGKILL)
                exit_code = server.reap(worker.pid)
        except OSError:
            with self._lock:
                if server is self._server:
                    self._drop_all()
            return None
        with self._lock:
            if server is self._server:
                self._num_alive -= 1
        return exit_code

    def _drop_all(self) -> None:
        for worker in self._idle:
            worker.connection.close()
        self._idle.clear()
        self._num_alive = 0
        if self._server is not None:
            self._server.stop()
            self._server = None
