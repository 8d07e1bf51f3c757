"""The numbers of a step that come from its rollouts and verdicts."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from grpo.algorithms.outcomes import has_signal
from grpo.values import ScoredGroup
from verifiers.verdict import Status


def compute_rollout_metrics(groups: Sequence[ScoredGroup]) -> dict[str, float]:
    """Rewards, verdicts, lengths and variety of a step's rollouts.

    Args:
        groups: At least one, the ones without signal included.
    """
    members = [member for group in groups for member in group.members]
    rewards = [member.reward for member in members if member.reward is not None]
    lengths = [len(member.rollout.completion_ids) for member in members]
    spreads = [statistics.stdev(group.rewards) for group in groups if len(group.rewards) > 1]
    metrics = {
        "frac_reward_zero_std": sum(not has_signal(group.rewards) for group in groups)
        / len(groups),
        "completions/mean_length": statistics.fmean(lengths),
        "completions/max_length": float(max(lengths)),
        "completions/clipped_ratio": sum(member.rollout.truncated for member in members)
        / len(members),
        "completions/distinct_fraction": statistics.fmean(map(_distinct_fraction, groups)),
        "num_tokens": float(sum(lengths)),
        **_verdict_shares([member.verdict.status for member in members]),
        **_by_verifier(groups),
    }
    if rewards:
        metrics["reward"] = statistics.fmean(rewards)
    if spreads:
        metrics["reward_std"] = statistics.fmean(spreads)
    return metrics


def _distinct_fraction(group: ScoredGroup) -> float:
    """1 when all completions of a group differ; near 1/K when the sampler repeats itself."""
    return len({member.rollout.completion_ids for member in group.members}) / len(group.members)


def _verdict_shares(statuses: Sequence[Status]) -> dict[str, float]:
    counts = Counter(statuses)
    shares = {f"verdicts/{status}": counts[status] / len(statuses) for status in Status}
    verified = len(statuses) - counts[Status.BAD_GOLD] - counts[Status.ERROR]
    return shares | ({"pass_rate": counts[Status.CORRECT] / verified} if verified else {})


def _by_verifier(groups: Sequence[ScoredGroup]) -> dict[str, float]:
    rewards: defaultdict[str, list[float]] = defaultdict(list)
    for group in groups:
        rewards[group.problem.verifier] += group.rewards
    for member in (member for group in groups for member in group.members):
        for place, (_, value) in enumerate(member.reward_parts):
            rewards[f"part_{place}"].append(value)
    return {
        f"rewards/{name}/mean": statistics.fmean(values)
        for name, values in rewards.items()
        if values
    }


def compute_timing_metrics(seconds: Mapping[str, float], num_tokens: float) -> dict[str, float]:
    """Wall seconds by phase, the loop's own share, and generation speed.

    Args:
        seconds: By phase, with the whole as `step`.
        num_tokens: Sampled in the step.
    """
    phases = sum(value for name, value in seconds.items() if name != "step")
    metrics = {f"time/{name}": value for name, value in seconds.items()}
    metrics["time/loop_overhead"] = seconds["step"] - phases
    if seconds.get("generation"):
        metrics["tokens_per_second"] = num_tokens / seconds["generation"]
    return metrics
