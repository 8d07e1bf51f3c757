"""What the kernel counts for the whole container: CPU time used, processes killed for memory."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from sandbox.container import processes

CGROUP = Path("/sys/fs/cgroup")
# Of cgroup version 2 and 1, with what makes seconds of the figure.
_CPU_FILES = {"cpu.stat": 1e6, "cpuacct/cpuacct.usage": 1e9}
_OOM_FILES = ("memory.events", "memory/memory.oom_control")


class Meter:
    """Reads the container's own control group, whichever version of these the machine has.

    Args:
        cgroup: Where it is mounted; None where programs do not have one to themselves.
    """

    def __init__(self, cgroup: Path | None) -> None:
        self._cpu = _open_first(cgroup, _CPU_FILES)
        self._oom = _open_first(cgroup, _OOM_FILES)

    def cpu_seconds(self, ids: Iterable[int]) -> float:
        """CPU time of everything but this process: the container's, or else that of the processes.

        The container's figure also holds children that have ended without being waited for.
        """
        if self._cpu is None:
            return processes.cpu_seconds(ids)
        name, descriptor = self._cpu
        words = os.pread(descriptor, 4096, 0).split()
        figure = int(words[0] if len(words) == 1 else words[1])
        return figure / _CPU_FILES[name] - time.process_time()

    def out_of_memory_kills(self) -> int:
        """How many processes were killed because the container's memory was used up."""
        if self._oom is None:
            return 0
        words = os.pread(self._oom[1], 4096, 0).split()
        return int(words[words.index(b"oom_kill") + 1]) if b"oom_kill" in words else 0


def _open_first(cgroup: Path | None, names: Iterable[str]) -> tuple[str, int] | None:
    if cgroup is None:
        return None
    for name in names:
        try:
            return name, os.open(cgroup / name, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue  # the other version, or a kernel that shows neither
    return None
