"""The caller's end of a fork server: start it, ask for workers, learn how they ended."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from verifiers.fork_server import WorkerSettings

ENVIRONMENT = {
    # GMP aborts the process on huge results and holds off every signal meanwhile; Python's integers
    # do neither.
    "SYMPY_GROUND_TYPES": "python",
    "MPMATH_NOGMPY": "1",
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "CUDA_VISIBLE_DEVICES": "",
}
CLOSE_LIMIT_S = 5.0


@dataclass(slots=True)
class Worker:
    """A worker process, and the end of the pipe to it.

    Attributes:
        pid: 0 until it has told.
        ready: Whether it has set up what it runs.
    """

    connection: Connection
    pid: int = 0
    ready: bool = False


@dataclass(slots=True)
class Server:
    """A fork server and the end of its control socket."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def start(cls, settings: WorkerSettings) -> Server:
        """Start a fork server; it imports what it shares while the caller goes on."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            fd = theirs.fileno()
            command = [sys.executable, "-P", "-m", "verifiers.fork_server"]
            process = subprocess.Popen(
                [*command, settings.to_json(), str(fd)],
                pass_fds=[fd],
                env={**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(sys.path)},
                stdin=subprocess.DEVNULL,
                stdout=2,  # what a user's function prints must not mix with our own standard output
                start_new_session=True,  # Ctrl-C in the terminal is the caller's business
            )
        return cls(process, ours)

    def fork(self) -> Worker:
        """Ask for a worker; it gets ready while the caller goes on."""
        ours, theirs = socket.socketpair()
        with theirs, self.lock:
            try:
                socket.send_fds(self.control, [b"fork"], [theirs.fileno()])
            except OSError:
                ours.close()
                raise
        return Worker(Connection(ours.detach()))

    def reap(self, pid: int) -> int:
        """Exit code of a dead or dying worker.

        Raises:
            OSError: The server itself is gone.
        """
        with self.lock:
            self.control.send(b"%d" % pid)
            answer = self.control.recv(64)
        if not answer:
            raise ConnectionResetError("the fork server has ended")
        return int(answer)

    def stop(self) -> None:
        """End the server, and with it every worker (each dies with its parent)."""
        self.control.close()
        self.process.kill()
        self.process.wait(CLOSE_LIMIT_S)
