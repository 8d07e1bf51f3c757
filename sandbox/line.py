"""Jobs that wait for a container: they are served in the order in which they came."""

from __future__ import annotations

import bisect
import contextlib
import threading
from collections.abc import Iterator


class Line:
    """A line of threads; every method is called with the owner's lock held.

    Args:
        lock: The owner's.
    """

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._waiting: list[Place] = []
        self._came = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def number(self) -> int:
        """The number of a job that has just come."""
        self._came += 1
        return self._came

    @contextlib.contextmanager
    def stand(self, number: int) -> Iterator[Place]:
        """Stand in the line, behind those that came before; the next is called at the end."""
        place = Place(number, threading.Condition(self._lock), self._waiting)
        bisect.insort(self._waiting, place, key=lambda one: one.number)
        try:
            yield place
        finally:
            self._waiting.remove(place)
            self.call_first()

    def call_first(self) -> None:
        """Have the first one look whether it can go."""
        if self._waiting:
            self._waiting[0].called.notify()

    def call_all(self) -> None:
        """Have everybody look up: there is news for all of them."""
        for place in self._waiting:
            place.called.notify()


class Place:
    """One thread's place in the line."""

    def __init__(self, number: int, called: threading.Condition, line: list[Place]) -> None:
        self.number = number
        self.called = called
        self._line = line

    @property
    def first(self) -> bool:
        """Whether it is this one's turn."""
        return self._line[0] is self

    def wait(self, timeout_s: float) -> None:
        """Wait to be called."""
        self.called.wait(timeout_s)
