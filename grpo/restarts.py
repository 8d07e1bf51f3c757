"""How often something may be started anew before its trouble is taken for lasting."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

WINDOW_S = 3600.0


class RestartBudget:
    """Allows so many restarts within any hour.

    A count over a whole run would end one that loses a machine a day; a rate does not, and still
    ends one that fails again at every start.

    Args:
        most: Restarts within the window.
        clock: Seconds that only grow.

    Example:
        >>> budget = RestartBudget(1)
        >>> budget.take(), budget.take()
        (True, False)
    """

    def __init__(self, most: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._taken: deque[float] = deque()

    def take(self) -> bool:
        """Count a restart in, if it is allowed."""
        now = self._clock()
        while self._taken and self._taken[0] < now - WINDOW_S:
            self._taken.popleft()
        if len(self._taken) >= self._most:
            return False
        self._taken.append(now)
        return True
