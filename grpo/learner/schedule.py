"""The learning rate as a function of the number of updates done; there is no state to save."""

from __future__ import annotations

import math
from typing import Literal

ScheduleName = Literal["constant", "linear", "cosine"]


def compute_learning_rate(
    updates_done: int,
    *,
    peak: float,
    schedule: ScheduleName,
    warmup_steps: int,
    total_steps: int,
) -> float:
    """Compute the learning rate of the next update.

    It rises in a straight line over `warmup_steps` updates, the last of which uses `peak` divided
    by one step more; then it stays (`constant`) or falls towards 0, which it would reach after the
    last update (`linear`, `cosine`).

    Args:
        updates_done: Updates before this one.
        peak: The highest rate.
        schedule: The course after the warm-up.
        warmup_steps: Length of the rise; 0 starts at `peak`.
        total_steps: Updates of the whole run, warm-up included.

    Example:
        >>> compute_learning_rate(
        ...     0, peak=1.0, schedule="constant", warmup_steps=3, total_steps=9
        ... )
        0.25
    """
    if updates_done < warmup_steps:
        return peak * (updates_done + 1) / (warmup_steps + 1)
    falling = max(1, total_steps - warmup_steps)
    progress = min(1.0, (updates_done - warmup_steps) / falling)
    match schedule:
        case "constant":
            return peak
        case "linear":
            return peak * (1 - progress)
        case "cosine":
            return peak * (1 + math.cos(math.pi * progress)) / 2
