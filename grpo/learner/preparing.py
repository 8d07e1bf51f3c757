"""What follows from the scores of a whole batch before the first update on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from grpo.algorithms.mismatch import compute_importance_weights
from grpo.algorithms.objective import Objective
from grpo.learner.figures import StepFigures
from grpo.learner.kl_reward import take_kl_off_rewards
from grpo.learner.passes import Prepared
from grpo.learner.statistics import Statistics
from grpo.values import TrainSample


def prepare_updates(
    scored: Sequence[Sequence[Prepared]],
    samples: Sequence[TrainSample],
    *,
    objective: Objective,
    beta: float,
    gather: Callable[[Tensor], Tensor],
    figures: StepFigures,
) -> list[list[Prepared]]:
    """Take the KL off the rewards, and find the mean importance weight, where that is asked.

    Args:
        scored: This rank's micro-batches of each mini-batch.
        samples: The batch, over all ranks.
        objective: What is optimised.
        beta: Weight of the KL.
        gather: Takes a tensor of shape (1, n) and returns every rank's, stacked.
        figures: Takes what was found.
    """
    share = [found for mini_batch in scored for found in mini_batch]
    if objective.kl_placement == "reward" and beta > 0:
        statistics = Statistics()
        share = take_kl_off_rewards(
            share, samples, objective=objective, beta=beta, gather=gather, statistics=statistics
        )
        figures.add_start(statistics.join(gather)[0])
    if objective.importance_normalise:
        figures.mean_importance = _mean_importance(share, objective, gather)
    refilled = iter(share)
    return [_take(refilled, len(mini_batch)) for mini_batch in scored]


def _take(items: Iterator[Prepared], count: int) -> list[Prepared]:
    return [next(items) for _ in range(count)]


def _mean_importance(
    share: Sequence[Prepared], objective: Objective, gather: Callable[[Tensor], Tensor]
) -> float:
    moments = share[0].tensors.weights.new_zeros(1, 2, dtype=torch.float64)
    for found in share:
        assert found.start_logprobs is not None, "weights are normalised over a scored batch"
        weights_N = compute_importance_weights(
            found.start_logprobs - found.tensors.sampler_logprobs,
            found.tensors.sequence,
            len(found.samples),
            mode=objective.importance_sampling,
            low=objective.importance_min,
            high=objective.importance_max,
        )
        moments[0, 0] += weights_N.double().sum()
        moments[0, 1] += len(weights_N)
    total, count = gather(moments).sum(0).tolist()
    return total / count
