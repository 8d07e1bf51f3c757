"""From scored groups to the batch that is learned from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from grpo.algorithms.advantages import ScaleRewards, compute_advantages, has_signal
from grpo.values import Batch, Rollout, ScoredGroup, TrainSample


def assemble_batch(
    groups: Sequence[ScoredGroup],
    *,
    step: int,
    advantage_estimator: str,
    scale_rewards: ScaleRewards,
    drop_groups_without_signal: bool,
    mask_truncated: bool,
) -> tuple[Batch, Mapping[str, int]]:
    """Compute advantages and leave out what cannot or must not be learned from.

    Args:
        groups: In a fixed order.
        step: The step the batch belongs to.
        advantage_estimator: See `grpo.algorithms.advantages`.
        scale_rewards: See there.
        drop_groups_without_signal: Leave out groups whose rewards do not differ; kept, they have
            advantage 0 and count in the loss's normaliser.
        mask_truncated: Keep truncated completions in their group's statistics but out of the loss.

    Returns:
        The batch, and how many rollouts were left out, by reason.
    """
    rewards = [[member.reward for member in group.members] for group in groups]
    advantages = compute_advantages(
        rewards, estimator=advantage_estimator, scale_rewards=scale_rewards
    )
    dropped: Counter[str] = Counter()
    samples: list[TrainSample] = []
    for group, group_rewards, group_advantages in zip(groups, rewards, advantages, strict=True):
        verified = sum(reward is not None for reward in group_rewards)
        dropped["unverified"] += len(group.members) - verified
        if drop_groups_without_signal and not has_signal(group_rewards):
            dropped["no_signal"] += verified
            continue
        for member, advantage in zip(group.members, group_advantages, strict=True):
            if advantage is None:
                continue
            masked = mask_truncated and member.rollout.truncated
            dropped["truncated"] += masked
            samples.append(_make_sample(group.problem.id, member.rollout, advantage, masked))
    batch = Batch(
        step=step,
        samples=tuple(samples),
        num_loss_tokens=sum(sample.num_loss_tokens for sample in samples),
    )
    return batch, {reason: count for reason, count in dropped.items() if count}


def _make_sample(problem_id: str, rollout: Rollout, advantage: float, masked: bool) -> TrainSample:
    return TrainSample(
        problem_id=problem_id,
        member=rollout.member,
        prompt_ids=rollout.prompt_ids,
        completion_ids=rollout.completion_ids,
        sampler_logprobs=rollout.logprobs,
        advantage=advantage,
        policy_version=min(rollout.policy_versions),
        masked=masked,
    )
