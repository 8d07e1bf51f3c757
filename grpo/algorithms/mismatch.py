"""Correct for samples that another distribution drew than the learner's.

The sampler computes the same policy with other kernels, or an older policy. With rho = exp(log old
policy - log sampler) at a token, a correction weighs the policy loss of every token, and a
rejection takes tokens or whole sequences out. Neither changes the loss's normaliser: what is left
must not count more for it.

Shapes: `_N` runs over the loss tokens of a micro-batch, `_S` over its sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from grpo.algorithms.sequences import sequence_mean, sequence_sum

Correction = Callable[[Tensor, float, float], Tensor]
Rejection = Callable[[Tensor, Tensor, int], Tensor]


def truncate(ratio: Tensor, low: float, high: float) -> Tensor:
    """The ratio, brought into its bounds (TIS): biased, with little variance."""
    return ratio.clamp(low, high)


def mask(ratio: Tensor, low: float, high: float) -> Tensor:
    """The ratio inside its bounds, 0 outside (MIS; with a lower bound, IcePop)."""
    return torch.where((ratio >= low) & (ratio <= high), ratio, 0.0)


# Mode -> (whether the ratio is one a sequence, the product of its tokens', and what is done to it).
IMPORTANCE_SAMPLING: Mapping[str, tuple[bool, Correction] | None] = {
    "off": None,
    "token_truncate": (False, truncate),
    "token_mask": (False, mask),
    "sequence_truncate": (True, truncate),
    "sequence_mask": (True, mask),
}


def compute_importance_weights(
    log_ratio_N: Tensor,
    sequence_N: Tensor,
    num_sequences: int,
    *,
    mode: str,
    low: float,
    high: float,
) -> Tensor:
    """Compute the weight of each token's policy loss.

    Args:
        log_ratio_N: log old policy - log sampler.
        sequence_N: The sequence of each token.
        num_sequences: How many there are.
        mode: A key of `IMPORTANCE_SAMPLING`.
        low: Smallest ratio that counts.
        high: Largest ratio that counts; infinity is no bound.

    Returns:
        Weights, detached, shape N; all 1 where the mode is `off`.
    """
    log_ratio_N = log_ratio_N.detach()
    correction = IMPORTANCE_SAMPLING[mode]
    if correction is None:
        return torch.ones_like(log_ratio_N)
    by_sequence, correct = correction
    if by_sequence:
        log_ratio_N = sequence_sum(log_ratio_N, sequence_N, num_sequences)[sequence_N]
    return correct(torch.exp(log_ratio_N), low, high)


def token_k3(log_ratio_N: Tensor, sequence_N: Tensor, num_sequences: int) -> Tensor:
    """The k3 estimate of KL(sampler || old policy) at each token."""
    del sequence_N, num_sequences
    return torch.expm1(log_ratio_N) - log_ratio_N


def sequence_k3(log_ratio_N: Tensor, sequence_N: Tensor, num_sequences: int) -> Tensor:
    """Its mean over the sequence."""
    k3_N = torch.expm1(log_ratio_N) - log_ratio_N
    return sequence_mean(k3_N, sequence_N, num_sequences)[sequence_N]


def sequence_geometric(log_ratio_N: Tensor, sequence_N: Tensor, num_sequences: int) -> Tensor:
    """The geometric mean of the sequence's ratios."""
    return torch.exp(sequence_mean(log_ratio_N, sequence_N, num_sequences))[sequence_N]


def sequence_product(log_ratio_N: Tensor, sequence_N: Tensor, num_sequences: int) -> Tensor:
    """The product of the sequence's ratios: its own importance ratio."""
    return torch.exp(sequence_sum(log_ratio_N, sequence_N, num_sequences))[sequence_N]


# Mode -> the statistic that must lie within the bounds.
REJECTION_SAMPLING: Mapping[str, Rejection | None] = {
    "off": None,
    "token_k3": token_k3,
    "sequence_k3": sequence_k3,
    "sequence_geometric": sequence_geometric,
    "sequence_product": sequence_product,
}


def compute_kept(
    log_ratio_N: Tensor,
    sequence_N: Tensor,
    num_sequences: int,
    *,
    mode: str,
    low: float,
    high: float,
) -> Tensor:
    """Tell which tokens stay in the loss.

    Args:
        log_ratio_N: log old policy - log sampler.
        sequence_N: The sequence of each token.
        num_sequences: How many there are.
        mode: A key of `REJECTION_SAMPLING`.
        low: Smallest statistic that is kept.
        high: Largest statistic that is kept.
    """
    statistic = REJECTION_SAMPLING[mode]
    if statistic is None:
        return torch.ones_like(log_ratio_N, dtype=torch.bool)
    values_N = statistic(log_ratio_N.detach(), sequence_N, num_sequences)
    return (values_N >= low) & (values_N <= high)


def keep_near_or_good(
    logprobs_N: Tensor,
    sampler_logprobs_N: Tensor,
    advantages_N: Tensor,
    sequence_N: Tensor,
    num_sequences: int,
    *,
    threshold: float,
) -> Tensor:
    """Drop sequences that are bad and have become unlikely (DeepSeek-V3.2, 2512.02556, eq. 9).

    Args:
        logprobs_N: Under the policy being trained.
        sampler_logprobs_N: Under the sampler.
        advantages_N: The advantage of each token.
        sequence_N: The sequence of each token.
        num_sequences: How many there are.
        threshold: Largest mean of log sampler - log policy of a sequence whose advantage is
            negative.

    Returns:
        Which tokens stay, shape N.
    """
    fallen_N = (sampler_logprobs_N - logprobs_N).detach()
    far_S = sequence_mean(fallen_N, sequence_N, num_sequences) > threshold
    return ~(far_S[sequence_N] & (advantages_N < 0))


def normalise_weights(weights_N: Tensor, mean: float) -> Tensor:
    """Bring the batch's mean weight to 1; an all-zero batch stays as it is."""
    return weights_N / mean if mean > 0 else weights_N
