"""Supervisors outside of Docker, for machines that have none: weaker, and used only on request.

`bubblewrap` gives programs no network, no process but their own and few files, but the kernel
holds no memory limit for all their processes together. `subprocess` gives them limits on time,
address space and output, and, where this process is the superuser's, a user of their own; they can
read and do whatever such a user can.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sandbox.bundle import BOOTSTRAP
from sandbox.container import processes
from sandbox.container.isolation import Mode
from sandbox.containers import FIRST_UID, NUM_UID_RANGES, UIDS_PER_CONTAINER
from sandbox.errors import Cause, SandboxUnavailable, WorkerLost
from sandbox.options import SandboxOptions
from sandbox.stream import FrameStream
from sandbox.worker import ENVIRONMENT, Worker

_END_WAIT_S = 10.0
_SYSTEM_PYTHON = Path("/usr/bin/python3")
_SYSTEM_FOLDERS = ("/bin", "/lib", "/lib64", "/usr/bin", "/usr/lib", "/usr/lib64")
_BUBBLEWRAP = (
    "bwrap", "--unshare-all", "--unshare-user", "--uid", "65534", "--gid", "65534",
    "--die-with-parent", "--new-session", "--proc", "/proc", "--dev", "/dev",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProcessTree:
    """A supervisor's process and all below it; a `sandbox.worker.Home`."""

    process: subprocess.Popen[bytes]

    def remove(self) -> None:
        """Kill all of them."""
        while left := processes.descendants({self.process.pid}):
            for one in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
        self.process.kill()
        self.process.wait(_END_WAIT_S)

    def cause_of_death(self) -> str:
        """Nobody can be asked who killed a process."""
        return "died"


def check_unsafe(options: SandboxOptions) -> None:
    """What the backend needs.

    Raises:
        SandboxUnavailable: It is not there; the message says what to do.
    """
    if options.backend == "bubblewrap" and shutil.which("bwrap") is None:
        raise SandboxUnavailable(
            Cause.NO_ENGINE,
            "The sandbox's backend is bubblewrap, and its command bwrap is not on the path. "
            "Install it (sudo apt-get install bubblewrap), or use the backend docker.",
        )
    _interpreter(options)


def start_process(options: SandboxOptions) -> Worker:
    """Start a supervisor and wait until it can take a job.

    Raises:
        WorkerLost: It ended or went silent before it was ready.
        SandboxUnavailable: See `check_unsafe`.
    """
    python = _interpreter(options)
    bubblewrap = options.backend == "bubblewrap"
    same_user = bubblewrap or os.geteuid() != 0
    command = [*(_bubblewrap(python) if bubblewrap else ()), str(python), "-sPB", "-c", BOOTSTRAP]
    ours, theirs = socket.socketpair()
    with tempfile.TemporaryFile() as complaint, contextlib.ExitStack() as undo:
        process = subprocess.Popen(
            command,
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=complaint,
            env=ENVIRONMENT,
            cwd="/",
            start_new_session=True,
        )
        theirs.close()
        home = ProcessTree(process)
        undo.callback(home.remove)
        stream = FrameStream(ours, multiplexed=False)
        undo.callback(stream.close)
        worker = Worker(stream, home, Mode.SAME_USER if same_user else Mode.UID)
        try:
            worker.greet(options, first_uid=_some_uid(), alone=bubblewrap, own_cgroup=False)
        except WorkerLost as error:
            complaint.seek(0)
            said = complaint.read()[-500:].decode("utf-8", "replace")
            raise WorkerLost(error.kind, f"{error} {said}".strip()) from error
        undo.pop_all()
    return worker


def _some_uid() -> int:
    range_ = random.SystemRandom().randrange(NUM_UID_RANGES)
    return FIRST_UID + UIDS_PER_CONTAINER * range_


def _bubblewrap(python: Path) -> list[str]:
    folders = [folder for folder in _SYSTEM_FOLDERS if Path(folder).exists()]
    if not python.is_relative_to("/usr"):
        folders.append(str(python.parent.parent))
    binds = [word for folder in folders for word in ("--ro-bind", folder, folder)]
    return [*_BUBBLEWRAP, *binds, "--remount-ro", "/"]


def _interpreter(options: SandboxOptions) -> Path:
    """A Python that programs can load modules from, whatever user they run as."""
    own = Path(sys.executable).resolve()
    if options.backend == "bubblewrap" or os.geteuid() != 0 or _open_to_all(own):
        return own
    if _SYSTEM_PYTHON.exists() and _open_to_all(_SYSTEM_PYTHON.resolve()):
        return _SYSTEM_PYTHON
    raise SandboxUnavailable(
        Cause.NO_ENGINE,
        f"The sandbox's backend is subprocess and this process is the superuser's, so programs get "
        f"a user of their own; but no other user can read this Python ({own}), and there is no "
        f"{_SYSTEM_PYTHON}. Install Python for all users, or run as another user than root.",
    )


def _open_to_all(path: Path) -> bool:
    return all(folder.stat().st_mode & 0o005 == 0o005 for folder in (path, *path.parents))
