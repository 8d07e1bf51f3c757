"""Turn the rewards of groups into advantages, one for each completion."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from grpo.algorithms.outcomes import Outcome, centre, deviation, divide, has_signal, mean
from verifiers.errors import UserError

Groups = Sequence[Sequence[Outcome]]
Values = list[list[float]]
ScaleRewards = Literal["group", "batch", "none"]

WHITENING_EPSILON = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """What centred rewards are divided by, where an estimator leaves that open.

    Attributes:
        by: The standard deviation of the `group`, of all raw rewards of the `batch`, or `none`.
        ddof: What the deviation's divisor falls short of the count by.
        epsilon: Added to the deviation.
    """

    by: ScaleRewards = "group"
    ddof: int = 1
    epsilon: float = 1e-4


def compute_advantages(
    groups: Sequence[Sequence[Outcome | None]],
    *,
    estimator: str = "grpo",
    scaling: Scaling = Scaling(),
) -> list[list[float | None]]:
    """Compute the advantage of every member of every group of a batch.

    None marks a member that could not be verified. It takes no part in any mean or deviation and
    its advantage is None. A group that teaches nothing (see `teaches`) gets 0 for each verified
    member, exactly.

    Args:
        groups: The members of each group, in order.
        estimator: A key of `ADVANTAGES`.
        scaling: Estimators that are not in `SCALED` fix their own scale and take `none` alone.

    Returns:
        One list for each group, as long as the group.

    Raises:
        UserError: If the estimator is unknown, or the scaling does not fit it.

    Example:
        >>> group = [Outcome(reward=1.0), Outcome(reward=0.0), None]
        >>> compute_advantages([group], scaling=Scaling(by="none"))
        [[0.5, -0.5, None]]
    """
    if estimator not in ADVANTAGES:
        raise UserError(
            f"advantage_estimator={estimator!r} is no advantage estimator: choose one of"
            f" {', '.join(ADVANTAGES)}"
        )
    if scaling.by != "none" and estimator not in SCALED:
        raise UserError(
            f"scale_rewards={scaling.by!r} contradicts advantage_estimator={estimator!r}, which"
            " fixes its own scale: set scale_rewards='none', or advantage_estimator='grpo'"
        )
    verified = [[member for member in group if member is not None] for group in groups]
    values = ADVANTAGES[estimator](verified, scaling)
    return [
        _place(group, computed if teaches(group, estimator) else [0.0] * len(computed))
        for group, computed in zip(groups, values, strict=True)
    ]


def teaches(group: Sequence[Outcome | None], estimator: str) -> bool:
    """Tell whether a group has advantages other than 0.

    Args:
        group: Its members; None marks one that could not be verified.
        estimator: A key of `ADVANTAGES`.

    Example:
        >>> equal = [Outcome(reward=1.0), Outcome(reward=1.0)]
        >>> teaches(equal, "grpo"), teaches(equal, "reinforce_plus_plus")
        (False, True)
    """
    verified = [member for member in group if member is not None]
    if estimator in BATCH_BASELINE:
        return len(verified) > 0
    if estimator in BY_REWARD:
        return any(has_signal(values) for _, values in _columns(verified))
    return has_signal(_rewards(verified))


def is_groupwise(estimator: str, scaling: Scaling) -> bool:
    """Whether a group's advantages are the same whatever else is in the batch."""
    return estimator in GROUPWISE and scaling.by != "batch"


def grpo(groups: Groups, scaling: Scaling) -> Values:
    """Reward minus the group's mean, over a standard deviation plus epsilon.

    `group`: the group's own deviation (DeepSeekMath, arXiv 2402.03300). `batch`: that of all raw
    rewards of the batch (LitePPO, arXiv 2508.08221). `none`: not divided (Dr. GRPO, arXiv
    2503.20783), which removes the preference for very hard and very easy prompts.
    """
    rewards = [_rewards(group) for group in groups]
    everything = [r for group in rewards for r in group]
    spread = deviation(everything, scaling.ddof) if scaling.by == "batch" else None
    return [_scale(group, scaling, spread) for group in rewards]


def rloo(groups: Groups, scaling: Scaling) -> Values:
    """Reward minus the mean of the *other* members (RLOO, arXiv 2402.14740)."""
    del scaling
    return [divide(centre(_rewards(g)), 1 - 1 / max(len(g), 2)) for g in groups]


def opo(groups: Groups, scaling: Scaling) -> Values:
    """Reward minus the group's mean weighted by length (OPO, arXiv 2505.23585)."""
    del scaling
    values: Values = []
    for group in groups:
        tokens = sum(m.length for m in group)
        baseline = math.fsum(m.length * m.reward for m in group) / max(tokens, 1)
        values.append([m.reward - baseline for m in group])
    return values


def max_rl(groups: Groups, scaling: Scaling) -> Values:
    """Reward minus the group's mean, over that mean; 0 where it is not positive (2602.02710)."""
    del scaling
    rewards = [_rewards(group) for group in groups]
    return [
        divide(centre(group), middle) if (middle := mean(group)) > 0 else [0.0] * len(group)
        for group in rewards
    ]


def gpg(groups: Groups, scaling: Scaling) -> Values:
    """Centred rewards times B / (B - M), M the members of groups without signal (arXiv 2504.02546).

    The factor keeps the size of the gradient when part of the batch has nothing to say.
    """
    del scaling
    return _gpg(groups, sum(len(group) for group in groups if teaches(group, "gpg")))


def gpg_verl(groups: Groups, scaling: Scaling) -> Values:
    """As verl computes `gpg`: its B - M counts the members whose reward is not 0."""
    del scaling
    return _gpg(groups, sum(m.reward != 0 for group in groups for m in group))


def gdpo(groups: Groups, scaling: Scaling) -> Values:
    """Each of several rewards normalised in its group, their sum whitened over the batch.

    A reward with a narrow range is heard beside one with a wide range (arXiv 2601.05242); with one
    reward only, this is `grpo` with a last whitening.
    """
    sums = [_sum_normalised(group, scaling) for group in groups]
    flat = [value for values in sums for value in values]
    middle, spread = mean(flat), deviation(flat, scaling.ddof) + scaling.epsilon
    return [[(value - middle) / spread for value in values] for values in sums]


def reinforce_plus_plus(groups: Groups, scaling: Scaling) -> Values:
    """The reward itself, whitened over the tokens of the batch (REINFORCE++, arXiv 2501.03262).

    The baseline is the batch's, so a group whose members are all right still teaches. With the KL
    in the reward there is one advantage for each token; see `grpo.algorithms.token_advantages`.
    """
    del scaling
    return _whiten([_rewards(group) for group in groups], _lengths(groups))


def reinforce_plus_plus_baseline(groups: Groups, scaling: Scaling) -> Values:
    """Reward minus the group's mean, whitened over the batch's sequences (arXiv 2501.03262).

    Whitening over tokens instead lets long answers dominate the mean and the deviation.
    """
    del scaling
    centred = [centre(_rewards(group)) for group in groups]
    return _whiten(centred, [[1] * len(group) for group in groups])


def reinforce_plus_plus_baseline_tokens(groups: Groups, scaling: Scaling) -> Values:
    """The same, whitened over tokens, as verl does."""
    del scaling
    return _whiten([centre(_rewards(group)) for group in groups], _lengths(groups))


Estimator = Callable[[Groups, Scaling], Values]

ADVANTAGES: Mapping[str, Estimator] = {
    "grpo": grpo,
    "rloo": rloo,
    "opo": opo,
    "max_rl": max_rl,
    "gpg": gpg,
    "gpg_verl": gpg_verl,
    "gdpo": gdpo,
    "reinforce_plus_plus": reinforce_plus_plus,
    "reinforce_plus_plus_baseline": reinforce_plus_plus_baseline,
    "reinforce_plus_plus_baseline_tokens": reinforce_plus_plus_baseline_tokens,
}
# Whose scale `scale_rewards` chooses.
SCALED = frozenset({"grpo", "gdpo"})
# Whose baseline is the whole batch's, so that a group of equal rewards has a signal too.
BATCH_BASELINE = frozenset({"reinforce_plus_plus"})
# Which look at each of several rewards by itself, so that equal totals may hide a signal.
BY_REWARD = frozenset({"gdpo"})
# Whose advantages follow from the group alone, where `scale_rewards` does not say otherwise.
GROUPWISE = frozenset({"grpo", "rloo", "opo", "max_rl"})
# Whose advantages need not sum to 0 in a group.
UNCENTRED = BATCH_BASELINE | {"opo", "reinforce_plus_plus_baseline_tokens"}


def _columns(group: Sequence[Outcome]) -> list[tuple[float, list[float]]]:
    """Weight and members' values of each of a group's rewards."""
    rows = [member.parts or ((1.0, member.reward),) for member in group]
    columns = list(zip(*rows, strict=True))
    return [(column[0][0], [value for _, value in column]) for column in columns]


def _sum_normalised(group: Sequence[Outcome], scaling: Scaling) -> list[float]:
    """Sum a group's rewards, each normalised and then weighted."""
    totals = [0.0] * len(group)
    for weight, values in _columns(group):
        normalised = _scale(values, scaling) if has_signal(values) else [0.0] * len(group)
        totals = [t + weight * v for t, v in zip(totals, normalised, strict=True)]
    return totals


def _place(group: Sequence[Outcome | None], computed: Sequence[float]) -> list[float | None]:
    """Put the verified members' values back in member order."""
    values = iter(computed)
    return [None if member is None else next(values) for member in group]


def _rewards(group: Sequence[Outcome]) -> list[float]:
    return [member.reward for member in group]


def _lengths(groups: Groups) -> list[list[int]]:
    return [[member.length for member in group] for group in groups]


def _scale(rewards: Sequence[float], scaling: Scaling, spread: float | None = None) -> list[float]:
    """Centre rewards and divide them by `spread`, or by their own deviation where that is asked."""
    if scaling.by == "none":
        return centre(rewards)
    own = deviation(rewards, scaling.ddof) if spread is None else spread
    # A deviation of 0 without an epsilon: the rewards are equal, so every one of them is the mean.
    return divide(centre(rewards), own + scaling.epsilon or 1.0)


def _gpg(groups: Groups, informative: int) -> Values:
    size = sum(len(group) for group in groups)
    alpha = size / informative if informative else 0.0
    return [[alpha * value for value in centre(_rewards(group))] for group in groups]


def _whiten(groups: Values, counts: Sequence[Sequence[int]]) -> Values:
    """Whiten the values of a batch, each standing there as often as `counts` says."""
    weighted = [
        (value, count)
        for values, numbers in zip(groups, counts, strict=True)
        for value, count in zip(values, numbers, strict=True)
    ]
    total = sum(count for _, count in weighted)
    middle = math.fsum(count * value for value, count in weighted) / max(total, 1)
    squares = math.fsum(count * (value - middle) ** 2 for value, count in weighted)
    root = math.sqrt(squares / max(total - 1, 1) + WHITENING_EPSILON)
    return [[(value - middle) / root for value in values] for values in groups]
