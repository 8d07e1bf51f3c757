"""Processes of the container as the kernel shows them, and how to end those of one user."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Of cgroup version 2 and 1, with what makes seconds of the figure.
_CPU_FILES = (
    (Path("/sys/fs/cgroup/cpu.stat"), 1e6),
    (Path("/sys/fs/cgroup/cpuacct/cpuacct.usage"), 1e9),
)
_OOM_FILES = (
    Path("/sys/fs/cgroup/memory.events"),
    Path("/sys/fs/cgroup/memory/memory.oom_control"),
)


def process_ids() -> set[int]:
    """Every process in this container, zombies included."""
    return {int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()}


def living(ids: Iterable[int]) -> set[int]:
    """Those of the processes that still run."""
    return {one for one in ids if _state(one) not in (None, "Z", "X")}


def cpu_seconds(ids: Iterable[int]) -> float:
    """CPU time of everything but this process: the container's, or else that of the processes.

    The container's figure also holds children that have ended without being waited for. Where the
    kernel does not show it, `stat` is read and not `schedstat`, which counts the first thread only.
    """
    for path, scale in _CPU_FILES:
        try:
            words = path.read_text("ascii").split()
        except OSError:
            continue  # the other cgroup version
        return int(words[0] if len(words) == 1 else words[1]) / scale - time.process_time()
    ticks = 0
    for one in ids:
        fields = _stat_fields(one)
        if fields is not None:
            ticks += sum(int(field) for field in fields[11:15])
    return ticks / _TICKS_PER_S


def waiting_seconds(ids: Iterable[int]) -> float:
    """How long one thread of the processes, at most, was ready to run but waited for a CPU."""
    longest = 0
    for one in ids:
        try:
            for thread in Path(f"/proc/{one}/task").iterdir():
                waited = int((thread / "schedstat").read_text("ascii").split()[1])
                longest = max(longest, waited)
        except (OSError, IndexError):
            continue  # it ended meanwhile, or this kernel keeps no such figures
    return longest / 1e9


def out_of_memory_kills() -> int:
    """How many processes the kernel has killed in this container because its memory was used up."""
    for path in _OOM_FILES:
        try:
            text = path.read_text("ascii")
        except OSError:
            continue  # the other cgroup version
        for line in text.splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def kill_user(uid: int, *, as_uid: int) -> None:
    """Kill every process of one user at once.

    The effective uid is what gives the right to signal them; the real one must be a third user's,
    since a process whose real uid is 0 or `uid` could also hit the supervisor, or be hit by the
    processes it kills.
    """
    os.setresuid(as_uid, uid, 0)
    try:
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        pass  # none was left
    finally:
        os.setresuid(0, 0, 0)


def _state(one: int) -> str | None:
    fields = _stat_fields(one)
    return None if fields is None else fields[0]


def _stat_fields(one: int) -> list[str] | None:
    """Fields of `/proc/<pid>/stat` from the third on; the second may hold spaces."""
    try:
        text = Path(f"/proc/{one}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()
