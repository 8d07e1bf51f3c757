"""How a run ends that nothing the user gave has ended."""

from __future__ import annotations


class RunFailed(RuntimeError):
    """A part of the run failed; the message names it, the cause is chained."""
