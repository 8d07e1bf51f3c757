"""How many prompts must be drawn so that enough of them have groups with a signal."""

from __future__ import annotations

from collections.abc import Sequence


def compute_silent_probability(pass_rate: float, group_size: int) -> float:
    """Chance that all members of a group are right, or all are wrong."""
    return pass_rate**group_size + (1 - pass_rate) ** group_size


def expect_prompts(pass_rates: Sequence[float], *, group_size: int, num_wanted: int) -> float:
    """Expected number of prompts to draw for `num_wanted` groups with a signal.

    Args:
        pass_rates: Of the prompts that are drawn from.
        group_size: Completions of each.
        num_wanted: Groups that must differ in their rewards.

    Returns:
        Infinity where no prompt can have a signal.
    """
    silent = [compute_silent_probability(rate, group_size) for rate in pass_rates]
    kept = 1 - sum(silent) / len(silent)
    return num_wanted / kept if kept > 0 else float("inf")
