"""Take the KL to the reference off the rewards, and compute the advantages anew."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from grpo.algorithms.advantages import UNCENTRED, compute_advantages
from grpo.algorithms.kl import estimate_kl
from grpo.algorithms.objective import Objective
from grpo.algorithms.outcomes import Outcome
from grpo.algorithms.sequences import sequence_sum
from grpo.algorithms.token_advantages import spread_rewards, whiten
from grpo.learner.invariants import check_group_means
from grpo.learner.passes import Prepared
from grpo.learner.statistics import Statistics
from grpo.values import TrainSample

Gather = Callable[[Tensor], Tensor]
# Whose advantages differ from token to token once a penalty does.
TOKEN_LEVEL = frozenset({"reinforce_plus_plus"})


def take_kl_off_rewards(
    share: Sequence[Prepared],
    samples: Sequence[TrainSample],
    *,
    objective: Objective,
    beta: float,
    gather: Gather,
    statistics: Statistics,
) -> list[Prepared]:
    """Give each micro-batch of a rank the advantages of rewards less beta times the KL.

    Most estimators see the sum over a completion's tokens; those of `TOKEN_LEVEL` see the
    penalties that follow each token. A masked completion has no penalty: it is not scored.

    Args:
        share: All micro-batches of this rank, scored.
        samples: The batch, over all ranks.
        objective: What is optimised.
        beta: Weight of the KL.
        gather: Takes a tensor of shape (1, n) and returns every rank's, stacked.
        statistics: Takes the KL's figures.
    """
    kls = [_estimate(found, objective, statistics) for found in share]
    if objective.advantage_estimator in TOKEN_LEVEL:
        return _spread_over_tokens(share, kls, beta, gather)
    totals = _sum_by_sample(share, kls, samples, gather)
    penalised = [
        replace(sample, reward=sample.reward - beta * kl, reward_parts=_with_kl(sample, beta, kl))
        for sample, kl in zip(samples, totals, strict=True)
    ]
    advantages = _advantages_by_sample(penalised, objective)
    return [_with_advantages(found, advantages) for found in share]


def _estimate(found: Prepared, objective: Objective, statistics: Statistics) -> Tensor:
    start, reference = found.start_logprobs, found.reference_logprobs
    assert start is not None, "the KL in the reward needs a scored batch"
    assert reference is not None, "and a reference"
    kl = estimate_kl(start, reference, start, estimator=objective.kl_estimator)
    statistics.add("kl", kl.values)
    statistics.add("kl_clamped", kl.num_clamped)
    statistics.add("tokens", kl.num_clamped.new_tensor(len(kl.values)))
    return kl.values


def _spread_over_tokens(
    share: Sequence[Prepared], kls: Sequence[Tensor], beta: float, gather: Gather
) -> list[Prepared]:
    returns = [_token_returns(found, beta * kl) for found, kl in zip(share, kls, strict=True)]
    moments = torch.zeros(3, dtype=torch.float64)
    for values in returns:
        wide = values.double().cpu()
        moments += torch.stack([torch.tensor(float(len(wide))), wide.sum(), wide.square().sum()])
    device = kls[0].device if kls else torch.device("cpu")
    count, total, squares = gather(moments[None].to(device)).sum(0).tolist()
    return [
        _replace_advantages(found, whiten(values, count=count, total=total, squares=squares))
        for found, values in zip(share, returns, strict=True)
    ]


def _token_returns(found: Prepared, penalties_N: Tensor) -> Tensor:
    taught = [sample for sample in found.samples if sample.num_loss_tokens]
    if not taught:
        return penalties_N
    device = penalties_N.device
    return spread_rewards(
        torch.tensor([s.reward for s in taught], dtype=penalties_N.dtype, device=device),
        penalties_N,
        torch.tensor([s.num_loss_tokens for s in taught], device=device),
    )


def _sum_by_sample(
    share: Sequence[Prepared],
    kls: Sequence[Tensor],
    samples: Sequence[TrainSample],
    gather: Gather,
) -> list[float]:
    """Each sample's KL, known to every rank."""
    places = {_name(sample): index for index, sample in enumerate(samples)}
    device = kls[0].device if kls else torch.device("cpu")
    totals = torch.zeros(len(samples), dtype=torch.float64, device=device)
    for found, kl in zip(share, kls, strict=True):
        sums = sequence_sum(kl.double(), found.tensors.sequence, len(found.samples))
        for row, sample in enumerate(found.samples):
            if sample.num_loss_tokens:
                totals[places[_name(sample)]] = sums[row]
    return gather(totals[None]).sum(0).tolist()


def _with_kl(sample: TrainSample, beta: float, kl: float) -> tuple[tuple[float, float], ...]:
    """Where there are several rewards, the KL is one more."""
    return (*sample.reward_parts, (beta, -kl)) if sample.reward_parts else ()


def _advantages_by_sample(
    samples: Sequence[TrainSample], objective: Objective
) -> dict[tuple[str, int, int], float]:
    groups: defaultdict[tuple[str, int], list[TrainSample]] = defaultdict(list)
    for sample in samples:
        groups[sample.group_key].append(sample)
    members = list(groups.values())
    values = compute_advantages(
        [[_read_outcome(sample) for sample in group] for group in members],
        estimator=objective.advantage_estimator,
        scaling=objective.scaling,
    )
    computed = [
        replace(sample, advantage=value)
        for group, advantages in zip(members, values, strict=True)
        for sample, value in zip(group, advantages, strict=True)
        if value is not None
    ]
    if objective.advantage_estimator not in UNCENTRED:
        check_group_means(computed)
    return {_name(sample): sample.advantage for sample in computed}


def _read_outcome(sample: TrainSample) -> Outcome:
    return Outcome(
        reward=sample.reward, length=len(sample.completion_ids), parts=sample.reward_parts
    )


def _with_advantages(found: Prepared, advantages: dict[tuple[str, int, int], float]) -> Prepared:
    assert found.start_logprobs is not None, "the KL in the reward needs a scored batch"
    by_row = [advantages[_name(sample)] for sample in found.samples]
    return _replace_advantages(
        found, found.start_logprobs.new_tensor(by_row)[found.tensors.sequence]
    )


def _replace_advantages(found: Prepared, advantages_N: Tensor) -> Prepared:
    return replace(found, tensors=replace(found.tensors, advantages=advantages_N))


def _name(sample: TrainSample) -> tuple[str, int, int]:
    return (*sample.group_key, sample.member)
