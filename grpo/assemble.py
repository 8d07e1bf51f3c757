"""From scored groups to the batch that is learned from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grpo.algorithms.advantages import Scaling, compute_advantages, teaches
from grpo.algorithms.outcomes import Outcome
from grpo.packed import find_spans
from grpo.values import Batch, ScoredGroup, ScoredRollout, TrainSample


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPolicy:
    """How scored groups become a batch.

    Attributes:
        advantage_estimator: See `grpo.algorithms.advantages`.
        scaling: See there.
        drop_groups_without_signal: Leave out groups that teach nothing; kept, they have advantage 0
            and count in the loss's normaliser.
        mask_truncated: Keep truncated completions in their group's statistics but out of the loss.
        max_staleness: Groups older than so many policy versions are left out beforehand.
    """

    advantage_estimator: str
    scaling: Scaling
    drop_groups_without_signal: bool
    mask_truncated: bool
    max_staleness: int = 0


def assemble_batch(
    groups: Sequence[ScoredGroup], *, step: int, policy: BatchPolicy
) -> tuple[Batch, Mapping[str, int]]:
    """Compute advantages and leave out what cannot or must not be learned from.

    Args:
        groups: In a fixed order.
        step: The step the batch belongs to.
        policy: How.

    Returns:
        The batch, and how many rollouts were left out, by reason.
    """
    outcomes = [_read_outcomes(group) for group in groups]
    advantages = compute_advantages(
        outcomes, estimator=policy.advantage_estimator, scaling=policy.scaling
    )
    dropped: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    samples: list[TrainSample] = []
    for group, group_advantages in zip(groups, advantages, strict=True):
        dropped["unverified"] += len(group.members) - len(group.rewards)
        if policy.drop_groups_without_signal and not group_teaches(
            group, policy.advantage_estimator
        ):
            dropped["no_signal"] += len(group.rewards)
            continue
        place = seen[group.problem.id]
        seen[group.problem.id] += 1
        for member, advantage in zip(group.members, group_advantages, strict=True):
            if advantage is None:
                continue
            masked = policy.mask_truncated and member.rollout.truncated
            dropped["truncated"] += masked
            samples.append(_make_sample(group.problem.id, place, member, advantage, masked))
    batch = Batch(
        step=step,
        samples=tuple(samples),
        num_loss_tokens=sum(sample.num_loss_tokens for sample in samples),
    )
    return batch, {reason: count for reason, count in dropped.items() if count}


def group_teaches(group: ScoredGroup, estimator: str) -> bool:
    """As `grpo.algorithms.advantages.teaches`: what every part of a step goes by."""
    return teaches(_read_outcomes(group), estimator)


def _read_outcomes(group: ScoredGroup) -> list[Outcome | None]:
    return [_read_outcome(member) for member in group.members]


def _read_outcome(member: ScoredRollout) -> Outcome | None:
    if member.reward is None:
        return None
    return Outcome(
        reward=member.reward,
        length=len(member.rollout.completion_ids),
        parts=member.reward_parts,
    )


def _make_sample(
    problem_id: str, group: int, member: ScoredRollout, advantage: float, masked: bool
) -> TrainSample:
    rollout = member.rollout
    assert member.reward is not None, "only verified members have an advantage"
    return TrainSample(
        problem_id=problem_id,
        member=rollout.member,
        prompt_ids=rollout.prompt_ids,
        completion_ids=rollout.completion_ids,
        sampler_logprobs=rollout.logprobs,
        advantage=advantage,
        policy_version=min(version for version, _ in find_spans(rollout.policy_versions)),
        masked=masked,
        reward=member.reward,
        reward_parts=member.reward_parts,
        group=group,
    )
