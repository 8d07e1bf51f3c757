"""Stops a run at the first broken invariant, or notes it and goes on."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from grpo.learner.invariants import InvariantBroken
from grpo.learner.options import OnBreach

# One fault breaks a check in every micro-batch; the first ones say all there is to say.
_MOST_KEPT = 3


class Guard:
    """A context around checks whose breach leaves an update possible.

    Checks of what an update is computed from (lengths, masks, the normaliser) stand outside of it:
    their breach always stops.

    Args:
        on_breach: `stop` lets `InvariantBroken` through, `warn` keeps its text.

    Example:
        >>> guard = Guard("warn")
        >>> with guard:
        ...     raise InvariantBroken("ratio", "it is 2")
        >>> guard.take()
        ["invariant 'ratio' is broken: it is 2"]
    """

    def __init__(self, on_breach: OnBreach) -> None:
        self.warns = on_breach == "warn"
        self._kept: list[str] = []

    def __enter__(self) -> Self:
        """Begin to check."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        """Keep a breach, where that is wanted; anything else goes through."""
        del kind, trace
        if not (self.warns and isinstance(error, InvariantBroken)):
            return False
        if len(self._kept) < _MOST_KEPT:
            self._kept.append(str(error))
        return True

    def take(self) -> list[str]:
        """Hand out what was kept since the last call."""
        kept, self._kept = self._kept, []
        return kept
