"""How many policy versions lie between drawing a token and learning from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from grpo.packed import find_spans
from grpo.values import ScoredGroup


def compute_staleness(group: ScoredGroup, policy_version: int) -> int:
    """Age of a group's oldest token, in policy versions.

    Args:
        group: Members without tokens do not count.
        policy_version: Of the policy that is about to learn.
    """
    spans = (span for m in group.members for span in find_spans(m.rollout.policy_versions))
    return policy_version - min((version for version, _ in spans), default=policy_version)


def split_stale(
    groups: Sequence[ScoredGroup], *, policy_version: int, max_staleness: int
) -> tuple[tuple[ScoredGroup, ...], tuple[ScoredGroup, ...]]:
    """Part the groups that may be learned from, from those that are too old.

    A group goes as a whole, or what is left of it would have other statistics.
    """
    fresh: list[ScoredGroup] = []
    stale: list[ScoredGroup] = []
    for group in groups:
        old = compute_staleness(group, policy_version) > max_staleness
        (stale if old else fresh).append(group)
    return tuple(fresh), tuple(stale)


def compute_staleness_metrics(
    groups: Sequence[ScoredGroup], policy_version: int
) -> dict[str, float]:
    """Mean and largest age of the tokens, and the share of each age."""
    ages: Counter[int] = Counter()
    for member in (member for group in groups for member in group.members):
        for version, count in find_spans(member.rollout.policy_versions):
            ages[policy_version - version] += count
    if not ages:
        return {}
    whole = ages.total()
    return {
        "staleness/mean": sum(age * count for age, count in ages.items()) / whole,
        "staleness/max": float(max(ages)),
        **{f"staleness/share_{age}": count / whole for age, count in sorted(ages.items())},
    }
