"""Estimators of the divergence from the reference policy, one value for each loss token.

With d = log ref - log policy at a sampled token, all four have the mean KL(policy || ref) or close
to it; what differs is the gradient they give when they stand in the loss (arXiv 2510.01555,
2512.21852, 2512.02556):

| estimator | value | gradient in expectation |
| --- | --- | --- |
| `k1` | -d | none: pure noise. For watching, not for training |
| `k2` | d^2 / 2 (biased) | of KL(policy || ref), exact while on-policy |
| `k3` | e^d - d - 1 | of the *forward* KL(ref || policy) |
| `k3_ratio` | ratio * k3 | of KL(policy || ref), exact on-policy and off-policy |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from verifiers.errors import UserError

# e^20 is 5e8: beyond this the estimate says nothing except "far away", and its gradient would drown
# the batch.
LOG_RATIO_LIMIT = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KlEstimate:
    """The divergence at every token; shape N.

    Attributes:
        values: The estimate, in nats.
        num_clamped: How many log-ratios were outside +-20 and got clamped; those tokens carry no KL
            gradient.
    """

    values: Tensor
    num_clamped: Tensor


def k1(log_ratio_N: Tensor, importance_N: Tensor) -> Tensor:
    """Minus the log-ratio."""
    del importance_N
    return -log_ratio_N


def k2(log_ratio_N: Tensor, importance_N: Tensor) -> Tensor:
    """Half the squared log-ratio."""
    del importance_N
    return log_ratio_N.square() / 2


def k3(log_ratio_N: Tensor, importance_N: Tensor) -> Tensor:
    """Schulman's low-variance estimator, never negative."""
    del importance_N
    return torch.expm1(log_ratio_N) - log_ratio_N


def k3_ratio(log_ratio_N: Tensor, importance_N: Tensor) -> Tensor:
    """`k3` times the importance ratio, whose gradient counts (DeepSeek-V3.2, 2512.02556)."""
    return importance_N * (torch.expm1(log_ratio_N) - log_ratio_N)


KL_ESTIMATORS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "k1": k1,
    "k2": k2,
    "k3": k3,
    "k3_ratio": k3_ratio,
}


def estimate_kl(
    logprobs_N: Tensor, reference_logprobs_N: Tensor, old_logprobs_N: Tensor, *, estimator: str
) -> KlEstimate:
    """Estimate KL(policy || reference) at every sampled token.

    Args:
        logprobs_N: Under the policy being trained; carries the gradient.
        reference_logprobs_N: Under the reference.
        old_logprobs_N: Under the policy that the samples stand for.
        estimator: A key of `KL_ESTIMATORS`.

    Raises:
        UserError: If there is no such estimator.
    """
    if estimator not in KL_ESTIMATORS:
        raise UserError(
            f"kl_estimator={estimator!r} is no estimator: choose one of {', '.join(KL_ESTIMATORS)}"
        )
    log_ratio_N = reference_logprobs_N - logprobs_N
    importance_N = torch.exp(logprobs_N - old_logprobs_N)
    clamped_N = log_ratio_N.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    return KlEstimate(
        values=KL_ESTIMATORS[estimator](clamped_N, importance_N),
        num_clamped=(log_ratio_N.detach().abs() > LOG_RATIO_LIMIT).sum(),
    )
