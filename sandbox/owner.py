"""Whose container is it, and is that process still alive?"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

LABEL = "org.verigrad.sandbox"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A process, told apart from every other that had or will have its number.

    Attributes:
        host: Machine it runs on.
        boot: Which boot of that machine.
        pid: Its number there.
        started: When it started, in ticks since the boot.
    """

    host: str
    boot: str
    pid: int
    started: int

    @classmethod
    def this_process(cls) -> Owner:
        """The process that asks."""
        return cls(
            host=socket.gethostname(),
            boot=_BOOT_ID.read_text("ascii").strip(),
            pid=os.getpid(),
            started=_start_ticks(os.getpid()) or 0,
        )

    def labels(self) -> dict[str, str]:
        """Container labels from which `from_labels` makes this owner again."""
        return {
            LABEL: "1",
            f"{LABEL}.host": self.host,
            f"{LABEL}.boot": self.boot,
            f"{LABEL}.pid": str(self.pid),
            f"{LABEL}.started": str(self.started),
        }

    @classmethod
    def from_labels(cls, labels: Mapping[str, str]) -> Owner | None:
        """The owner that a container's labels name; None when they name none."""
        try:
            return cls(
                host=labels[f"{LABEL}.host"],
                boot=labels[f"{LABEL}.boot"],
                pid=int(labels[f"{LABEL}.pid"]),
                started=int(labels[f"{LABEL}.started"]),
            )
        except (KeyError, ValueError):
            return None

    def gone(self) -> bool:
        """Whether this process has ended for certain; of other machines' nothing is known."""
        me = Owner.this_process()
        if self.host != me.host:
            return False
        return self.boot != me.boot or _start_ticks(self.pid) != self.started


def _start_ticks(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[19])
