"""Processes of the container as the kernel shows them, and how to end those of one user."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def process_ids() -> set[int]:
    """Every process in this container, zombies included."""
    return {int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()}


def living(ids: Iterable[int]) -> set[int]:
    """Those of the processes that still run."""
    return {one for one in ids if _state(one) not in (None, "Z", "X")}


def descendants(ancestors: Iterable[int]) -> set[int]:
    """Children of the processes, their children, and so on, as far as they still run."""
    parents: dict[int, int] = {}
    for one in process_ids():
        fields = _stat_fields(one)
        if fields is not None and fields[0] not in ("Z", "X"):
            parents[one] = int(fields[1])
    found, newest = set[int](), set(ancestors)
    while newest := {one for one, parent in parents.items() if parent in newest} - found:
        found |= newest
    return found


def cpu_seconds(ids: Iterable[int]) -> float:
    """CPU time of the processes, and of children that they have waited for.

    `stat` is read and not `schedstat`, which counts the first thread only.
    """
    fields = [found for one in ids if (found := _stat_fields(one)) is not None]
    return sum(int(ticks) for found in fields for ticks in found[11:15]) / _TICKS_PER_S


def mapped_bytes(one: int) -> int:
    """Size of a process's address space."""
    pages = Path(f"/proc/{one}/statm").read_text("ascii").split()[0]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


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
