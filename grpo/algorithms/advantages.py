"""Turn the rewards of groups into advantages."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from verifiers.errors import UserError

Rewards = Sequence[float | None]
Advantages = list[float | None]
ScaleRewards = Literal["group", "batch", "none"]

# Rewards that differ by less are one reward: float noise divided by a tiny standard deviation would
# otherwise become an advantage of order one.
SPREAD_TOLERANCE = 1e-6
STD_EPSILON = 1e-4
WHITENING_EPSILON = 1e-8


def has_signal(rewards: Rewards) -> bool:
    """Tell whether a group can teach anything: two verified members, with rewards that differ.

    The decision is taken on the whole group at once and on max - min, never on a standard deviation
    of zero.
    """
    verified = [r for r in rewards if r is not None]
    return len(verified) >= 2 and max(verified) - min(verified) > SPREAD_TOLERANCE


def compute_advantages(
    groups: Sequence[Rewards], *, estimator: str = "grpo", scale_rewards: ScaleRewards = "group"
) -> list[Advantages]:
    """Compute the advantage of every member of every group of a batch.

    A reward of None marks a member that could not be verified. It takes no part in any mean or
    deviation and its advantage is None. A group without signal (see `has_signal`) gets 0 for each
    verified member, exactly.

    Args:
        groups: The rewards of each group, in member order.
        estimator: A key of `ADVANTAGES`.
        scale_rewards: What the centred rewards are divided by; only `grpo` divides by anything,
            every other estimator takes `none` alone.

    Returns:
        One list for each group, as long as the group.

    Raises:
        UserError: If the estimator is unknown, or `scale_rewards` does not fit it.

    Example:
        >>> compute_advantages([[1.0, 0.0, None]], scale_rewards="none")
        [[0.5, -0.5, None]]
    """
    compute = ADVANTAGES.get(estimator)
    if compute is None:
        raise UserError(
            f"advantage={estimator!r} is no advantage estimator: choose one of"
            f" {', '.join(ADVANTAGES)}"
        )
    verified = [[r for r in rewards if r is not None] for rewards in groups]
    values = compute(verified, scale_rewards)
    return [_place(rewards, computed) for rewards, computed in zip(groups, values, strict=True)]


def grpo(groups: Sequence[Sequence[float]], scale: ScaleRewards) -> list[list[float]]:
    """Reward minus the group's mean, over a standard deviation (ddof 1) plus 1e-4.

    `group`: the group's own deviation (DeepSeekMath, arXiv 2402.03300). `batch`: that of all raw
    rewards of the batch (LitePPO, arXiv 2508.08221). `none`: not divided (Dr. GRPO, arXiv
    2503.20783), which removes the preference for very hard and very easy prompts.
    """
    centred = [_centre(rewards) for rewards in groups]
    if scale == "none":
        return centred
    if scale == "batch":
        deviation = _std([r for rewards in groups for r in rewards])
        return [_divide(values, deviation + STD_EPSILON) for values in centred]
    return [
        _divide(values, _std(rewards) + STD_EPSILON)
        for values, rewards in zip(centred, groups, strict=True)
    ]


def rloo(groups: Sequence[Sequence[float]], scale: ScaleRewards) -> list[list[float]]:
    """Reward minus the mean of the *other* members (RLOO, arXiv 2402.14740)."""
    _refuse_scale("rloo", scale)
    return [_divide(_centre(rewards), 1 - 1 / max(len(rewards), 2)) for rewards in groups]


def reinforce_plus_plus_baseline(
    groups: Sequence[Sequence[float]], scale: ScaleRewards
) -> list[list[float]]:
    """Reward minus the group's mean, whitened over the batch's sequences (arXiv 2501.03262).

    Whitening over tokens instead would let long answers dominate the mean and the deviation.
    """
    _refuse_scale("reinforce_plus_plus_baseline", scale)
    centred = [_centre(rewards) for rewards in groups]
    everything = [value for values in centred for value in values]
    mean = math.fsum(everything) / max(len(everything), 1)
    root = math.sqrt(_std(everything) ** 2 + WHITENING_EPSILON)
    return [[(value - mean) / root for value in values] for values in centred]


def max_rl(groups: Sequence[Sequence[float]], scale: ScaleRewards) -> list[list[float]]:
    """Reward minus the group's mean, over that mean; 0 where it is not positive (2602.02710)."""
    _refuse_scale("max_rl", scale)
    return [
        _divide(_centre(rewards), mean) if (mean := _mean(rewards)) > 0 else [0.0] * len(rewards)
        for rewards in groups
    ]


def gpg(groups: Sequence[Sequence[float]], scale: ScaleRewards) -> list[list[float]]:
    """Centred rewards times B / (B - M), M the members of groups without signal (arXiv 2504.02546).

    The factor keeps the size of the gradient when part of the batch has nothing to say.
    """
    _refuse_scale("gpg", scale)
    size = sum(len(rewards) for rewards in groups)
    informative = sum(len(rewards) for rewards in groups if has_signal(rewards))
    alpha = size / informative if informative else 0.0
    return [[alpha * value for value in _centre(rewards)] for rewards in groups]


Estimator = Callable[[Sequence[Sequence[float]], ScaleRewards], list[list[float]]]

ADVANTAGES: Mapping[str, Estimator] = {
    "grpo": grpo,
    "rloo": rloo,
    "reinforce_plus_plus_baseline": reinforce_plus_plus_baseline,
    "max_rl": max_rl,
    "gpg": gpg,
}


def _place(rewards: Rewards, computed: Sequence[float]) -> Advantages:
    """Put the verified members' values back in member order."""
    signal = has_signal(rewards)
    values = iter(computed)
    return [None if r is None else next(values) if signal else 0.0 for r in rewards]


def _refuse_scale(estimator: str, scale: ScaleRewards) -> None:
    if scale != "none":
        raise UserError(
            f"scale_rewards={scale!r} contradicts advantage={estimator!r}, which fixes its own"
            " scale: set scale_rewards='none', or choose advantage='grpo'"
        )


def _mean(values: Sequence[float]) -> float:
    # fsum is exact, so the order of a group's members cannot change the result.
    return math.fsum(values) / len(values) if values else 0.0


def _centre(values: Sequence[float]) -> list[float]:
    mean = _mean(values)
    return [value - mean for value in values]


def _std(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    return math.sqrt(math.fsum(v * v for v in _centre(values)) / (len(values) - 1))


def _divide(values: Sequence[float], by: float) -> list[float]:
    return [value / by for value in values]
