"""What a process says of itself, to be named should it die or hang."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_MEMINFO = Path("/proc/meminfo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """Last signs of life of a process.

    Attributes:
        pid: Its id.
        memory_mb: Memory that it holds (resident), in MB.
        available_mb: Memory that its machine had left.
    """

    pid: int
    memory_mb: float
    available_mb: float

    def __str__(self) -> str:
        return (
            f"process {self.pid} held {self.memory_mb:.0f} MB and its machine had "
            f"{self.available_mb:.0f} MB left"
        )


def read_vitals() -> Vitals:
    """Read this process's own."""
    resident = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE
    available = next(
        int(line.split()[1])
        for line in _MEMINFO.read_text(encoding="ascii").splitlines()
        if line.startswith("MemAvailable:")
    )
    return Vitals(pid=os.getpid(), memory_mb=resident / 1e6, available_mb=available * 1024 / 1e6)


def describe_threads() -> str:
    """Where every Python thread of this process stands, but the one that asks."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    own = threading.get_ident()
    parts = [
        f"thread {names.get(ident, ident)}:\n" + "".join(traceback.format_stack(frame))
        for ident, frame in sys._current_frames().items()  # noqa: SLF001 - the one way to see them
        if ident != own
    ]
    return "\n".join(parts)
