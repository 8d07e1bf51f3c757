"""The loss of one micro-batch, from its log-probabilities."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from grpo.algorithms.kl import estimate_kl
from grpo.algorithms.losses import PolicyTokens, find_loss
from grpo.algorithms.presets import Objective
from grpo.learner.batching import MicroBatchTensors
from grpo.learner.statistics import Statistics


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenScores:
    """What the models say of the loss tokens of a micro-batch; every tensor has shape N.

    Attributes:
        logprobs: Under the policy; carries the gradient.
        entropies: Of the policy's distributions.
        old_logprobs: Under the policy as it was before the first update on this batch.
        reference_logprobs: Under the reference; None where there is no KL term.
    """

    logprobs: Tensor
    entropies: Tensor
    old_logprobs: Tensor
    reference_logprobs: Tensor | None


def compute_microbatch_loss(
    scores: TokenScores,
    tensors: MicroBatchTensors,
    *,
    objective: Objective,
    beta: float,
    statistics: Statistics,
) -> Tensor:
    """Compute a micro-batch's share of the global loss, and note its statistics.

    Args:
        scores: The log-probabilities.
        tensors: The micro-batch.
        objective: What is optimised.
        beta: Weight of the KL term.
        statistics: Takes the figures of this micro-batch.

    Returns:
        A scalar; the sum over all micro-batches of all ranks is the loss of the batch.
    """
    tokens = PolicyTokens(
        logprobs=scores.logprobs,
        old_logprobs=scores.old_logprobs,
        advantages=tensors.advantages,
        sequence=tensors.sequence,
        num_sequences=len(tensors.input_ids),
    )
    policy = find_loss(objective.policy_loss)(
        tokens,
        epsilon=objective.epsilon,
        epsilon_high=objective.epsilon_high,
        delta=objective.delta,
    )
    loss = (tensors.weights * policy.loss).sum()
    statistics.add("policy_loss", loss)
    if scores.reference_logprobs is not None:
        kl = estimate_kl(
            scores.logprobs,
            scores.reference_logprobs,
            scores.old_logprobs,
            estimator=objective.kl_estimator,
        )
        loss = loss + beta * (tensors.weights * kl.values).sum()
        statistics.add("kl", kl.values)
        statistics.add("kl_clamped", kl.num_clamped)
    statistics.add("loss", loss)
    statistics.add("tokens", tensors.targets.new_tensor(len(tensors.targets)))
    statistics.add("entropy", scores.entropies)
    statistics.add("ratio", policy.ratio)
    statistics.raise_to("ratio", policy.ratio)
    statistics.add("clipped_low", policy.clipped_low)
    statistics.add("clipped_high", policy.clipped_high)
    statistics.add("clipped", policy.clipped_low | policy.clipped_high)
    difference_N = (scores.old_logprobs.detach() - tensors.sampler_logprobs).abs()
    statistics.add("sampler_difference", difference_N)
    statistics.raise_to("sampler_difference", difference_N)
    return loss
