"""What is known of a group's members before advantages, and the statistics taken over it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# Rewards that differ by less are one reward: float noise divided by a tiny standard deviation would
# otherwise become an advantage of order one.
SPREAD_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A verified completion, as advantages see it.

    Attributes:
        reward: What it is worth as a whole.
        length: Its tokens.
        parts: Weight and value of each reward that `reward` is the sum of, the same ones for every
            member; empty where there is one reward only.

    Example:
        >>> Outcome(reward=1.5, length=7, parts=((1.0, 1.0), (0.5, 1.0))).reward
        1.5
    """

    reward: float
    length: int = 1
    parts: tuple[tuple[float, float], ...] = ()


def has_signal(rewards: Sequence[float | None]) -> bool:
    """Tell whether a group can teach anything: two verified members, with rewards that differ.

    The decision is taken on the whole group at once and on max - min, never on a standard deviation
    of zero.
    """
    verified = [r for r in rewards if r is not None]
    return len(verified) >= 2 and max(verified) - min(verified) > SPREAD_TOLERANCE


def mean(values: Sequence[float]) -> float:
    """The mean, 0 of nothing; exactly summed, so that the order of members cannot change it."""
    return math.fsum(values) / len(values) if values else 0.0


def centre(values: Sequence[float]) -> list[float]:
    """Each value less the mean."""
    middle = mean(values)
    return [value - middle for value in values]


def deviation(values: Sequence[float], ddof: int = 1) -> float:
    """The standard deviation, 0 of a single value."""
    if len(values) < 2:
        return 0.0
    return math.sqrt(math.fsum(v * v for v in centre(values)) / (len(values) - ddof))


def divide(values: Sequence[float], by: float) -> list[float]:
    """Each value over a number."""
    return [value / by for value in values]
