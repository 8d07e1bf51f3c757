"""The numbers of a step that come from its rollouts and verdicts."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from grpo.algorithms.outcomes import has_signal
from grpo.assemble import BatchPolicy, group_teaches
from grpo.timing import StepTimes
from grpo.values import ScoredGroup
from grpo.waits import (
    ROLLOUT_QUEUE,
    VERIFICATION_QUEUE,
    VERIFIER_TRACK,
    WORKED,
    compute_waits,
)
from verifiers.verdict import Status, Verdict

# Counts of the completions that could not be verified, by reason.
NOT_VERIFIED = "not_verified/"
# Right ones among those that could be.
SHARE_RIGHT = "pass_rate"


def compute_rollout_metrics(
    groups: Sequence[ScoredGroup], *, reward_names: Sequence[str]
) -> dict[str, float]:
    """Rewards, verdicts, lengths and variety of a step's rollouts.

    Args:
        groups: At least one, the ones without signal included.
        reward_names: Of the parts of a reward that has several.
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
        **_count_not_verified([member.verdict for member in members]),
        **_by_name(groups, reward_names),
    }
    if rewards:
        metrics["reward"] = statistics.fmean(rewards)
    if spreads:
        metrics["reward_std"] = statistics.fmean(spreads)
    return metrics


def _distinct_fraction(group: ScoredGroup) -> float:
    """1 when all completions of a group differ; near 1/K when the sampler repeats itself."""
    different = {np.asarray(member.rollout.completion_ids).tobytes() for member in group.members}
    return len(different) / len(group.members)


def _verdict_shares(statuses: Sequence[Status]) -> dict[str, float]:
    counts = Counter(statuses)
    shares = {f"verdicts/{status}": counts[status] / len(statuses) for status in Status}
    verified = len(statuses) - counts[Status.BAD_GOLD] - counts[Status.ERROR]
    return shares | ({SHARE_RIGHT: counts[Status.CORRECT] / verified} if verified else {})


def _count_not_verified(verdicts: Sequence[Verdict]) -> dict[str, float]:
    unknown = {Status.BAD_GOLD, Status.ERROR}
    counts = Counter(verdict.reason for verdict in verdicts if verdict.status in unknown)
    return {f"{NOT_VERIFIED}{reason}": float(count) for reason, count in counts.items()}


def _by_name(groups: Sequence[ScoredGroup], reward_names: Sequence[str]) -> dict[str, float]:
    rewards: defaultdict[str, list[float]] = defaultdict(list)
    for group in groups:
        rewards[group.problem.verifier] += group.rewards
    names = [f"{name}_part" if name in rewards else name for name in reward_names]
    for member in (member for group in groups for member in group.members):
        if member.reward_parts:
            for name, (_, value) in zip(names, member.reward_parts, strict=True):
                rewards[name].append(value)
    return {
        f"rewards/{name}/mean": statistics.fmean(values)
        for name, values in rewards.items()
        if values
    }


def compute_timing_metrics(
    times: StepTimes, *, num_tokens: float, num_engines: int
) -> dict[str, float]:
    """Wall seconds by phase, who waited for whom, and how fast and how well used the engines were.

    Args:
        times: Of the step.
        num_tokens: Sampled for the step.
        num_engines: Engines of the pool.
    """
    seconds = times.seconds
    phases = sum(value for name, value in seconds.items() if name != "step")
    waits = compute_waits(times, num_engines)
    metrics = {f"time/{name}": value for name, value in seconds.items()}
    metrics["time/loop_overhead"] = seconds["step"] - phases
    metrics |= {
        f"waits/{worker}/{cause}": value
        for worker, row in waits.items()
        for cause, value in row.items()
    }
    metrics["engines/utilisation"] = waits["engines"][WORKED] / seconds["step"]
    metrics["queues/rollouts_max"] = times.largest(ROLLOUT_QUEUE)
    metrics["queues/verification_max"] = times.largest(VERIFICATION_QUEUE)
    if generating := times.total("generation"):
        metrics["tokens_per_second"] = num_tokens / generating
    if verifying := sum(s.end - s.begin for s in times.spans if s.track == VERIFIER_TRACK):
        hidden = 1 - times.total("verification_tail") / verifying
        metrics["verification/seconds"] = verifying
        metrics["verification/hidden_fraction"] = max(0.0, hidden)
    return metrics


def compute_waste(
    groups: Sequence[ScoredGroup],
    *,
    left_out: Mapping[str, Sequence[ScoredGroup]],
    policy: BatchPolicy,
) -> dict[str, float]:
    """Sampled tokens that teach nothing, by the reason, as shares of all.

    A token counts once, under the first of the reasons that holds.

    Args:
        groups: That the step learns from.
        left_out: Whole groups that it does not, by reason.
        policy: How groups become a batch.
    """
    tokens = {reason: sum(map(_count_tokens, rest)) for reason, rest in left_out.items()}
    whole = sum(tokens.values())
    tokens |= dict.fromkeys(("unverified", "no_signal", "truncated"), 0)
    for group in groups:
        silent = policy.drop_groups_without_signal and not group_teaches(
            group, policy.advantage_estimator
        )
        for member in group.members:
            length = len(member.rollout.completion_ids)
            whole += length
            if member.reward is None:
                tokens["unverified"] += length
            elif silent:
                tokens["no_signal"] += length
            elif policy.mask_truncated and member.rollout.truncated:
                tokens["truncated"] += length
    return {f"waste/{reason}": count / max(whole, 1) for reason, count in tokens.items()}


def _count_tokens(group: ScoredGroup) -> int:
    return sum(len(member.rollout.completion_ids) for member in group.members)
