"""Coefficients that follow what training does: the weight of the KL and of the entropy bonus."""

from __future__ import annotations

from dataclasses import dataclass

_ERROR_LIMIT = 0.2
# However many samples a step has, one step neither halves the coefficient nor doubles it. The
# published rule has no such bound, and goes negative with more than five horizons of samples.
MULTIPLIER_BOUNDS = (0.5, 2.0)


def adapt_beta(
    beta: float,
    *,
    kl: float,
    target: float,
    num_samples: int,
    horizon: float,
    bounds: tuple[float, float] = MULTIPLIER_BOUNDS,
) -> float:
    """Move the KL's weight so that the KL moves towards its target (arXiv 1909.08593, section 2.2).

    Args:
        beta: The weight so far.
        kl: What was measured with it.
        target: What is wanted.
        num_samples: Completions since the last adjustment.
        horizon: Completions over which a far-off KL changes the weight by a fifth.
        bounds: Smallest and largest factor of one adjustment.

    Example:
        >>> round(adapt_beta(0.2, kl=12.0, target=6.0, num_samples=256, horizon=10_000), 6)
        0.201024
    """
    error = min(max(kl / target - 1, -_ERROR_LIMIT), _ERROR_LIMIT)
    return beta * min(max(1 + error * num_samples / horizon, bounds[0]), bounds[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class EntropyBonus:
    """The weight of the entropy bonus, and the entropy that was last seen with it.

    Attributes:
        coefficient: What the controller has come to.
        last_entropy: Mean entropy of the last update, in nats; None before the first.
    """

    coefficient: float
    last_entropy: float | None = None

    def applied(self, target: float | None) -> float:
        """The weight to use now: none while the entropy was above its target (2505.22312).

        Args:
            target: None is a fixed coefficient.
        """
        if target is None or (self.last_entropy is not None and self.last_entropy <= target):
            return self.coefficient
        return 0.0

    def after(
        self, entropy: float, *, target: float, delta: float, lowest: float, highest: float
    ) -> EntropyBonus:
        """Move the coefficient by `delta`, up while the entropy is below its target.

        Args:
            entropy: What this update measured.
            target: What is wanted at least.
            delta: Size of a move.
            lowest: Smallest coefficient.
            highest: Largest coefficient.
        """
        move = delta if entropy < target else -delta
        moved = min(max(self.coefficient + move, lowest), highest)
        return EntropyBonus(coefficient=moved, last_entropy=entropy)
