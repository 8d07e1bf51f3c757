"""Ctrl-C: stop at the next place where nothing is half done."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import Self


class StopRequested(Exception):
    """The user asked the run to stop; raised only where no write is in hand."""


class StopSignal:
    """Turns SIGINT and SIGTERM into a flag that long waits look at; the second signal kills.

    Args:
        announce: Called with one line when the first signal arrives.
    """

    def __init__(self, announce: Callable[[str], None]) -> None:
        self._announce = announce
        self._previous: dict[int, object] = {}
        self.requested = False

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # pyright: ignore[reportArgumentType]

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        self._announce(
            "Stopping: a checkpoint is saved first. Press Ctrl-C again to stop without one."
        )

    def check(self) -> None:
        """Raise `StopRequested` if a signal has arrived."""
        if self.requested:
            raise StopRequested
