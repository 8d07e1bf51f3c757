"""Where the wall time of a step, and of the start, went."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager


class Timeline:
    """Sums wall seconds by phase; phases do not nest.

    Args:
        on_phase: Told the name of each phase as it begins.

    Example:
        >>> timeline = Timeline()
        >>> with timeline.phase("update"):
        ...     pass
        >>> sorted(timeline.take())
        ['step', 'update']
    """

    def __init__(self, on_phase: Callable[[str], None] = lambda _: None) -> None:
        self._on_phase = on_phase
        self._begun = time.perf_counter()
        self._seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time inside under `name`."""
        self._on_phase(name)
        begun = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - begun

    def take(self) -> Mapping[str, float]:
        """Seconds by phase since the last call, with the whole as `step`; starts anew."""
        now = time.perf_counter()
        taken = {**self._seconds, "step": now - self._begun}
        self._begun, self._seconds = now, {}
        return taken


class Laps:
    """Splits the way to the first step into named parts.

    Args:
        begun: `time.perf_counter()` at the start of the first one.
    """

    def __init__(self, begun: float) -> None:
        self.begun = begun
        self._last = begun
        self.seconds: dict[str, float] = {}

    def lap(self, name: str) -> None:
        """End a part."""
        now = time.perf_counter()
        self.seconds[name] = now - self._last
        self._last = now
