"""The loss of one micro-batch, from its log-probabilities."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from grpo.algorithms.kl import estimate_kl
from grpo.algorithms.losses import PolicyTokens, compute_policy_loss
from grpo.algorithms.mismatch import (
    compute_importance_weights,
    compute_kept,
    keep_near_or_good,
    normalise_weights,
    token_k3,
)
from grpo.algorithms.objective import Objective
from grpo.learner.layout import MicroBatchTensors
from grpo.learner.statistics import Statistics


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenScores:
    """What the models say of the loss tokens of a micro-batch; every tensor has shape N.

    Attributes:
        logprobs: Under the policy; carries the gradient.
        entropies: Of the policy's distributions.
        start_logprobs: Under the policy as it was before the first update on this batch.
        reference_logprobs: Under the reference; None where there is no KL term in the loss.
        own: Whether the policy drew the token in the version that it has now.
    """

    logprobs: Tensor
    entropies: Tensor
    start_logprobs: Tensor
    reference_logprobs: Tensor | None
    own: Tensor


def compute_microbatch_loss(
    scores: TokenScores,
    tensors: MicroBatchTensors,
    *,
    objective: Objective,
    beta: float = 0.0,
    entropy_coef: float = 0.0,
    mean_importance: float = 1.0,
    statistics: Statistics,
) -> Tensor:
    """Compute a micro-batch's share of the global loss, and note its statistics.

    Args:
        scores: The log-probabilities.
        tensors: The micro-batch.
        objective: What is optimised.
        beta: Weight of the KL term.
        entropy_coef: Weight of the entropy bonus.
        mean_importance: The batch's mean importance weight, where weights are normalised.
        statistics: Takes the figures of this micro-batch.

    Returns:
        A scalar; the sum over all micro-batches of all ranks is the loss of the batch.
    """
    from_sampler = objective.old_logprobs == "sampler"
    old_N = tensors.sampler_logprobs if from_sampler else scores.start_logprobs
    tokens = PolicyTokens(
        logprobs=scores.logprobs,
        old_logprobs=old_N,
        advantages=tensors.advantages,
        sequence=tensors.sequence,
        num_sequences=tensors.num_sequences,
    )
    policy = compute_policy_loss(objective.policy_loss, tokens, asdict(objective))
    importance_N = weigh_importance(scores, tensors, objective, mean_importance)
    loss = (tensors.weights * importance_N * policy.loss).sum()
    statistics.add("policy_loss", loss)
    if scores.reference_logprobs is not None:
        kl = estimate_kl(
            scores.logprobs, scores.reference_logprobs, old_N, estimator=objective.kl_estimator
        )
        loss = loss + beta * (tensors.weights * kl.values).sum()
        statistics.add("kl", kl.values)
        statistics.add("kl_clamped", kl.num_clamped)
    if entropy_coef:
        loss = loss - entropy_coef * (tensors.weights * scores.entropies).sum()
    statistics.add("loss", loss)
    statistics.add("tokens", tensors.targets.new_tensor(len(tensors.targets)))
    statistics.add("entropy", scores.entropies)
    statistics.add("ratio", policy.ratio)
    statistics.raise_to("ratio", policy.ratio)
    statistics.add("clipped_low", policy.clipped_low)
    statistics.add("clipped_high", policy.clipped_high)
    statistics.add("clipped", policy.clipped_low | policy.clipped_high)
    _note_mismatch(scores, tensors, importance_N, statistics)
    return loss


def weigh_importance(
    scores: TokenScores,
    tensors: MicroBatchTensors,
    objective: Objective,
    mean_importance: float = 1.0,
) -> Tensor:
    """Compute what each token's policy loss is multiplied by, shape N: 0 where it is rejected."""
    place = (tensors.sequence, tensors.num_sequences)
    log_ratio_N = scores.start_logprobs - tensors.sampler_logprobs
    weights_N = compute_importance_weights(
        log_ratio_N,
        *place,
        mode=objective.importance_sampling,
        low=objective.importance_min,
        high=objective.importance_max,
    )
    if objective.importance_normalise:
        weights_N = normalise_weights(weights_N, mean_importance)
    kept_N = compute_kept(
        log_ratio_N,
        *place,
        mode=objective.rejection_sampling,
        low=objective.rejection_min,
        high=objective.rejection_max,
    )
    if objective.off_policy_mask_threshold is not None:
        kept_N &= keep_near_or_good(
            scores.logprobs,
            tensors.sampler_logprobs,
            tensors.advantages,
            *place,
            threshold=objective.off_policy_mask_threshold,
        )
    return weights_N * kept_N


def _note_mismatch(
    scores: TokenScores, tensors: MicroBatchTensors, importance_N: Tensor, statistics: Statistics
) -> None:
    log_ratio_N = scores.start_logprobs - tensors.sampler_logprobs
    statistics.add("sampler_difference", log_ratio_N.abs())
    statistics.raise_to("sampler_difference", log_ratio_N.abs())
    statistics.add("own_tokens", scores.own)
    statistics.add("own_difference", torch.where(scores.own, log_ratio_N.abs(), 0.0))
    statistics.add("sampler_kl", token_k3(log_ratio_N, tensors.sequence, tensors.num_sequences))
    statistics.add("importance", importance_N)
    statistics.add("importance_squared", importance_N.square())
    statistics.add("kept", torch.count_nonzero(importance_N))
