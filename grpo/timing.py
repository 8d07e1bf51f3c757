"""Where the wall time of a step, and of the start, went."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class Timeline:
    """Sums wall seconds by phase; phases do not nest.

    Example:
        >>> timeline = Timeline()
        >>> with timeline.phase("update"):
        ...     pass
        >>> sorted(timeline.take())
        ['step', 'update']
    """

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._seconds: dict[str, float] = {}
        self.current = "start"

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time inside under `name`."""
        outer, self.current = self.current, name
        begun = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - begun
            self.current = outer

    def take(self) -> Mapping[str, float]:
        """Seconds by phase since the last call, with the whole as `step`; starts anew."""
        now = time.perf_counter()
        taken = {**self._seconds, "step": now - self._begun}
        self._begun, self._seconds = now, {}
        return taken
