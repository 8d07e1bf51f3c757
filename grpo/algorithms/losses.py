"""Policy losses, one value for each loss token, before any reduction.

Shapes: `_N` runs over the loss tokens of a micro-batch, laid end to end without padding; `_S` over
its sequences. A loss is minimised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from verifiers.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTokens:
    """The loss tokens of a micro-batch; every tensor has shape N.

    Attributes:
        logprobs: Log-probability under the policy being trained; carries the gradient.
        old_logprobs: The same under the policy as it was before the first update on this batch.
        advantages: The advantage of the sequence that the token belongs to.
        sequence: Which sequence that is, counted from 0 within the micro-batch.
        num_sequences: How many there are.
    """

    logprobs: Tensor
    old_logprobs: Tensor
    advantages: Tensor
    sequence: Tensor
    num_sequences: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLoss:
    """What a policy loss says about every token; every tensor has shape N.

    Attributes:
        loss: The loss.
        ratio: Importance ratio that the loss used, detached.
        clipped_low: Where the lower bound took the gradient away (or capped it).
        clipped_high: Where the upper bound did.
    """

    loss: Tensor
    ratio: Tensor
    clipped_low: Tensor
    clipped_high: Tensor


class LossFunction(Protocol):
    """A policy loss."""

    def __call__(
        self, tokens: PolicyTokens, *, epsilon: float, epsilon_high: float, delta: float | None
    ) -> TokenLoss:
        """Compute the loss of every token.

        Args:
            tokens: The micro-batch.
            epsilon: How far the ratio may fall below 1.
            epsilon_high: How far it may rise above 1; for `cispo` the largest weight itself.
            delta: Largest ratio that counts where the advantage is negative; None is no limit.
        """
        ...


def ppo_clip(
    tokens: PolicyTokens, *, epsilon: float, epsilon_high: float, delta: float | None
) -> TokenLoss:
    """PPO's clipped surrogate with a bound for each side (DAPO's clip-higher, arXiv 2503.14476).

    `delta` also bounds the loss where the advantage is negative and the ratio large, which PPO
    leaves open: the dual clip of arXiv 1912.09729 and the two-sided clip of INTELLECT-2 are this
    same function for any `delta` above `1 + epsilon_high`.
    """
    ratio_N = torch.exp(tokens.logprobs - tokens.old_logprobs)
    return _clipped_surrogate(ratio_N, tokens.advantages, epsilon, epsilon_high, delta)


def gspo(
    tokens: PolicyTokens, *, epsilon: float, epsilon_high: float, delta: float | None
) -> TokenLoss:
    """The clipped surrogate on one ratio a sequence, its tokens' geometric mean (2507.18071).

    Every token of a sequence gets the sequence's value, so only a mean over sequences gives the
    published objective.
    """
    log_ratio_N = tokens.logprobs - tokens.old_logprobs
    ratio_S = torch.exp(_mean_by_sequence(log_ratio_N, tokens))
    ratio_N = ratio_S[tokens.sequence]
    return _clipped_surrogate(ratio_N, tokens.advantages, epsilon, epsilon_high, delta)


def cispo(
    tokens: PolicyTokens, *, epsilon: float, epsilon_high: float, delta: float | None
) -> TokenLoss:
    """REINFORCE weighted by the ratio, capped at `epsilon_high` and detached (2506.13585).

    No token ever loses its gradient. The cap is the largest weight itself, not a distance from 1;
    there is no lower bound.
    """
    del epsilon, delta
    ratio_N = torch.exp(tokens.logprobs - tokens.old_logprobs).detach()
    weight_N = ratio_N.clamp(max=epsilon_high)
    return TokenLoss(
        loss=-weight_N * tokens.advantages * tokens.logprobs,
        ratio=ratio_N,
        clipped_low=torch.zeros_like(ratio_N, dtype=torch.bool),
        clipped_high=ratio_N > epsilon_high,
    )


def reinforce(
    tokens: PolicyTokens, *, epsilon: float, epsilon_high: float, delta: float | None
) -> TokenLoss:
    """Minus advantage times log-probability; right only while the samples are on-policy."""
    del epsilon, epsilon_high, delta
    ratio_N = torch.exp(tokens.logprobs - tokens.old_logprobs).detach()
    never_N = torch.zeros_like(ratio_N, dtype=torch.bool)
    return TokenLoss(
        loss=-tokens.advantages * tokens.logprobs,
        ratio=ratio_N,
        clipped_low=never_N,
        clipped_high=never_N,
    )


LOSSES: Mapping[str, LossFunction] = {
    "ppo_clip": ppo_clip,
    "gspo": gspo,
    "cispo": cispo,
    "reinforce": reinforce,
}


def find_loss(name: str) -> LossFunction:
    """Look a policy loss up by name.

    Raises:
        UserError: If there is none of that name.
    """
    if name not in LOSSES:
        raise UserError(
            f"policy_loss={name!r} is no policy loss: choose one of {', '.join(LOSSES)}"
        )
    return LOSSES[name]


def _clipped_surrogate(
    ratio_N: Tensor,
    advantages_N: Tensor,
    epsilon: float,
    epsilon_high: float,
    delta: float | None,
) -> TokenLoss:
    bounded_N = ratio_N if delta is None else ratio_N.clamp(max=delta)
    clipped_N = ratio_N.clamp(1 - epsilon, 1 + epsilon_high)
    detached_N = ratio_N.detach()
    return TokenLoss(
        loss=torch.maximum(-bounded_N * advantages_N, -clipped_N * advantages_N),
        ratio=detached_N,
        clipped_low=(detached_N < 1 - epsilon) & (advantages_N < 0),
        clipped_high=(detached_N > 1 + epsilon_high) & (advantages_N > 0),
    )


def _mean_by_sequence(values_N: Tensor, tokens: PolicyTokens) -> Tensor:
    zeros_S = values_N.new_zeros(tokens.num_sequences)
    total_S = zeros_S.index_add(0, tokens.sequence, values_N)
    count_S = zeros_S.index_add(0, tokens.sequence, torch.ones_like(values_N))
    return total_S / count_S.clamp(min=1)
