"""Which processes are a program's, whose user they run as, and how all of them are ended."""

from __future__ import annotations

import contextlib
import os
import signal
from enum import StrEnum

from sandbox.container import processes

USERS = 95


class Mode(StrEnum):
    """What stands between one program and the next, and the supervisor."""

    UID = "uid"
    """A user of its own for each program."""
    NAMESPACE = "namespace"
    """That, and namespaces of its own."""
    SAME_USER = "same_user"
    """Nothing: one program is all that this supervisor ever runs."""


class Isolation:
    """Knows the processes of the program that runs now.

    Args:
        mode: How programs are kept apart.
        first_uid: The first of the uids that are free for use; no program gets it.
        own: This supervisor and its zygotes, and any init process.
        zygotes: Parents of all programs; of one another too.
        alone: Whether no other processes exist in this process's view of the machine.
    """

    def __init__(
        self, *, mode: Mode, first_uid: int, own: set[int], zygotes: set[int], alone: bool
    ) -> None:
        self.mode = mode
        self.first_uid = first_uid
        self.own = own
        self.zygotes = zygotes
        self.alone = alone
        self._runs = 0

    def add_zygote(self, one: int) -> None:
        """Count a process that was started later among the parents of programs."""
        self.own.add(one)
        self.zygotes.add(one)

    def next_user(self) -> int | None:
        """The uid of the next program; None for this process's own."""
        self._runs += 1
        return None if self.mode is Mode.SAME_USER else self._user

    @property
    def _user(self) -> int:
        return self.first_uid + 1 + self._runs % USERS

    def members(self) -> set[int]:
        """Every process of the program; zombies count where an init process removes them."""
        if self.alone:
            return processes.process_ids() - self.own
        return processes.descendants(self.zygotes) - self.zygotes

    def end(self, members: set[int]) -> None:
        """Kill them."""
        if self.mode is Mode.SAME_USER:
            for one in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
        else:
            processes.kill_user(self._user, as_uid=self.first_uid)
