"""The process that forks verifier workers: started clean and single-threaded.

Run as `python -m verifiers.fork_server SETTINGS_JSON CONTROL_FD`. It is not `multiprocessing`'s
fork server, for three reasons: that one re-imports the caller's `__main__` (a training script, or
Ray's worker) in every child, is shared by the whole process with one preload list, and cannot tell
why a child died.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import pickle
import resource
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from verifiers.errors import UserError

PR_SET_PDEATHSIG = 1
REAP_PATIENCE_S = 1.0
REAP_POLL_S = 0.001
ORPHAN_CHECK_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """What a worker runs, and within which limits.

    Attributes:
        target: `module:function`, called with each job's arguments.
        setup: `module:function`, called once in each new worker with `setup_args`; None for
            nothing.
        setup_args: Plain JSON values.
        preload: Modules imported once, in the fork server, and shared by its workers; a
            `module:function` is called there.
        cpu_limit_s: CPU seconds a job may use; the kernel ends the worker beyond it, whatever the
            load is.
        wall_limit_s: Wall seconds a job may take: the fence for a worker that sleeps.
        start_limit_s: Wall seconds a new worker may take to get ready.
        memory_mb: Address space of a worker.
        max_jobs: Jobs after which a worker is replaced.
        max_resident_mb: Resident memory beyond which a worker is replaced after its job.
    """

    target: str
    setup: str | None = None
    setup_args: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    cpu_limit_s: float = 2.0
    wall_limit_s: float = 10.0
    start_limit_s: float = 60.0
    memory_mb: int = 1024
    max_jobs: int = 5000
    max_resident_mb: int = 500

    def __post_init__(self) -> None:
        for name in ("cpu_limit_s", "wall_limit_s", "start_limit_s", "memory_mb"):
            if not getattr(self, name) > 0:
                raise UserError(
                    f"{name} of a verifier is {getattr(self, name)!r}; it must be above 0"
                )

    def to_json(self) -> str:
        """The settings as the fork server's command line carries them."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> WorkerSettings:
        """Inverse of `to_json`."""
        values = json.loads(text)
        for name in ("setup_args", "preload"):
            values[name] = tuple(values[name])
        return cls(**values)


def resolve(spec: str) -> Callable[..., Any]:
    """The function that `module:function` names."""
    module, _, function = spec.partition(":")
    return getattr(importlib.import_module(module), function)


def serve(control: socket.socket, settings: WorkerSettings) -> None:
    """Fork a worker for each socket received, tell how one ended, and go when the caller goes."""
    for name in settings.preload:
        if ":" in name:
            resolve(name)()
        else:
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # the collector would write to, and so copy, pages shared with the workers
    caller = os.getppid()
    while True:
        readable, _, _ = select.select([control], [], [], ORPHAN_CHECK_S)
        if os.getppid() != caller:
            return
        if not readable:
            continue
        message, fds, _, _ = socket.recv_fds(control, 64, 1)
        if not message:
            return
        if fds:
            _fork_worker(control, fds[0], settings)
        else:
            control.send(b"%d" % _reap(int(message)))


def _fork_worker(control: socket.socket, fd: int, settings: WorkerSettings) -> None:
    server = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        os.close(fd)  # the caller sees the closed socket
        return
    if pid:
        os.close(fd)
        return
    status = 1
    try:
        control.close()
        _run_worker(Connection(fd), settings, server)
        status = 0
    except (BrokenPipeError, ConnectionResetError):
        status = 0  # the caller closed the pool before this worker was ready
    except BaseException:  # noqa: BLE001 - the fork's last chance to say why it ends
        traceback.print_exc()
    finally:
        os._exit(status)  # never back into the server's loop, nor its exit handlers


def _reap(pid: int) -> int:
    """Exit code of a worker that has ended or is about to; a signal is negative."""
    give_up = time.monotonic() + REAP_PATIENCE_S
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > give_up:
            os.kill(pid, signal.SIGKILL)
            give_up += REAP_PATIENCE_S
        time.sleep(REAP_POLL_S)


def _run_worker(connection: Connection, settings: WorkerSettings, server: int) -> None:
    _confine(settings, server)
    connection.send(os.getpid())
    try:
        if settings.setup:
            resolve(settings.setup)(*settings.setup_args)
        target = resolve(settings.target)
    except BaseException:  # noqa: BLE001 - a user's module; the caller raises it
        connection.send(traceback.format_exc())
        return
    connection.send(None)
    for job in range(1, settings.max_jobs + 1):
        try:
            arguments = connection.recv()
        except (EOFError, ConnectionResetError):
            return
        kind, value = _run_job(target, arguments, settings.cpu_limit_s)
        retire = job == settings.max_jobs or _resident_mb() > settings.max_resident_mb
        try:
            reply = pickle.dumps((kind, value, retire))
        except Exception:  # noqa: BLE001 - anything may refuse to be pickled
            reply = pickle.dumps(("raised", traceback.format_exc(), retire))
        connection.send_bytes(reply)
        if retire:
            return


def _run_job(
    target: Callable[..., Any], arguments: tuple[Any, ...], cpu_limit_s: float
) -> tuple[str, Any]:
    # SIGPROF keeps its default action, so the kernel ends the process even inside C code that never
    # returns.
    signal.setitimer(signal.ITIMER_PROF, cpu_limit_s)
    try:
        return "done", target(*arguments)
    except MemoryError:
        return "memory", None
    except BaseException:  # noqa: BLE001 - the job is untrusted; its traceback is the answer
        return "raised", traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _confine(settings: WorkerSettings, server: int) -> None:
    """Die with the server, stay within the memory limit, be the first to go when memory ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != server:
        os._exit(1)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    limit = settings.memory_mb * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):  # not writable in some containers, and only a preference
        Path("/proc/self/oom_score_adj").write_text("1000")


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def main() -> None:
    """Entry point: `python -m verifiers.fork_server SETTINGS_JSON CONTROL_FD`."""
    control = socket.socket(fileno=int(sys.argv[2]))
    control.set_inheritable(False)
    serve(control, WorkerSettings.from_json(sys.argv[1]))


if __name__ == "__main__":
    main()
