"""Policy losses, one value for each loss token, before any reduction.

Shapes: `_N` runs over the loss tokens of a micro-batch, laid end to end without padding; `_S` over
its sequences. A loss is minimised. Each function names, as keyword arguments, the parameters of an
objective that it uses.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from grpo.algorithms.sequences import sequence_mean, sequence_sum
from verifiers.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTokens:
    """The loss tokens of a micro-batch; every tensor has shape N.

    Attributes:
        logprobs: Log-probability under the policy being trained; carries the gradient.
        old_logprobs: The same under the policy that ratios compare it with: as it was before the
            first update on this batch, or the sampler's.
        advantages: The advantage of each token.
        sequence: Which sequence it belongs to, counted from 0 within the micro-batch.
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

    Every token of a sequence gets the sequence's value, so a mean over sequences gives the
    published objective, and a sum over tokens gives LUSPO (arXiv 2602.05261).
    """
    log_ratio_N = tokens.logprobs - tokens.old_logprobs
    ratio_S = torch.exp(sequence_mean(log_ratio_N, tokens.sequence, tokens.num_sequences))
    ratio_N = ratio_S[tokens.sequence]
    return _clipped_surrogate(ratio_N, tokens.advantages, epsilon, epsilon_high, delta)


def cispo(tokens: PolicyTokens, *, epsilon: float, epsilon_high: float) -> TokenLoss:
    """REINFORCE weighted by the ratio, detached, between 1 - `epsilon` and `epsilon_high`.

    No token ever loses its gradient (arXiv 2506.13585). The upper bound is the largest weight
    itself, not a distance from 1; `epsilon` of 1 is no lower bound. With the sampler's
    log-probabilities as the old ones, this is AIPO (LlamaRL, arXiv 2505.24034).
    """
    ratio_N = torch.exp(tokens.logprobs - tokens.old_logprobs).detach()
    weight_N = ratio_N.clamp(1 - epsilon, epsilon_high)
    return TokenLoss(
        loss=-weight_N * tokens.advantages * tokens.logprobs,
        ratio=ratio_N,
        clipped_low=ratio_N < 1 - epsilon,
        clipped_high=ratio_N > epsilon_high,
    )


def sapo(
    tokens: PolicyTokens, *, sapo_temperature_pos: float, sapo_temperature_neg: float
) -> TokenLoss:
    """A soft gate in the place of the clip: 4 / tau * sigmoid(tau (r - 1)) (arXiv 2511.20347).

    The gradient fades with the distance from ratio 1 instead of ending at a bound, faster for
    negative advantages, whose temperature is the higher one.
    """
    ratio_N = torch.exp(tokens.logprobs - tokens.old_logprobs)
    positive = ratio_N.new_tensor(sapo_temperature_pos)
    tau_N = torch.where(tokens.advantages > 0, positive, sapo_temperature_neg)
    gate_N = 4 / tau_N * torch.sigmoid(tau_N * (ratio_N - 1))
    return _unclipped(-gate_N * tokens.advantages, ratio_N)


def vespo(
    tokens: PolicyTokens,
    *,
    vespo_k_pos: float,
    vespo_lambda_pos: float,
    vespo_k_neg: float,
    vespo_lambda_neg: float,
) -> TokenLoss:
    """REINFORCE weighted by w^k e^(lambda (1 - w)), w the product ratio (arXiv 2602.10693).

    The weight is 1 at w = 1 and falls on both sides; where it peaks and how fast it falls differ by
    the advantage's sign.
    """
    log_ratio_N = (tokens.logprobs - tokens.old_logprobs).detach()
    log_w_N = sequence_sum(log_ratio_N, tokens.sequence, tokens.num_sequences)[tokens.sequence]
    up_N = tokens.advantages > 0
    k_N = torch.where(up_N, log_w_N.new_tensor(vespo_k_pos), vespo_k_neg)
    lambda_N = torch.where(up_N, log_w_N.new_tensor(vespo_lambda_pos), vespo_lambda_neg)
    phi_N = torch.exp(k_N * log_w_N + lambda_N * (1 - torch.exp(log_w_N)))
    return _unclipped(-phi_N * tokens.advantages * tokens.logprobs, torch.exp(log_ratio_N))


def reinforce(tokens: PolicyTokens) -> TokenLoss:
    """Minus advantage times log-probability; right only while the samples are on-policy."""
    ratio_N = torch.exp(tokens.logprobs - tokens.old_logprobs)
    return _unclipped(-tokens.advantages * tokens.logprobs, ratio_N)


def dppo_tv(
    tokens: PolicyTokens, *, epsilon: float, epsilon_high: float, dppo_kl_tau: float
) -> TokenLoss:
    """The ratio times the advantage, without tokens whose *probability* moved too far.

    A token whose probability rose by more than `epsilon_high` (advantage above 0) or fell by more
    than `epsilon` (any other) is left out: the binary total variation of DPPO (arXiv 2602.04879).
    A small pull back to the old policy, tau (log r)^2 as in Kimi K2.5, acts on every token.
    """
    log_ratio_N = tokens.logprobs - tokens.old_logprobs
    ratio_N = torch.exp(log_ratio_N)
    moved_N = torch.exp(tokens.logprobs.detach()) - torch.exp(tokens.old_logprobs)
    up_N = tokens.advantages > 0
    high_N, low_N = up_N & (moved_N > epsilon_high), ~up_N & (moved_N < -epsilon)
    surrogate_N = (-tokens.advantages * ratio_N).masked_fill(high_N | low_N, 0.0)
    return TokenLoss(
        loss=surrogate_N + dppo_kl_tau * log_ratio_N.square(),
        ratio=ratio_N.detach(),
        clipped_low=low_N,
        clipped_high=high_N,
    )


LossFunction = Callable[..., TokenLoss]

LOSSES: Mapping[str, LossFunction] = {
    "ppo_clip": ppo_clip,
    "gspo": gspo,
    "cispo": cispo,
    "sapo": sapo,
    "vespo": vespo,
    "reinforce": reinforce,
    "dppo_tv": dppo_tv,
}
# Whose gradient is the same however far the policy has moved since it drew the samples.
NO_RATIO = frozenset({"reinforce"})
# Whose value is one a sequence.
SEQUENCE_LEVEL = frozenset({"gspo"})


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


def parameters_of(loss: LossFunction) -> frozenset[str]:
    """Name the parameters that a policy loss uses."""
    kinds = inspect.signature(loss).parameters.values()
    return frozenset(each.name for each in kinds if each.kind is each.KEYWORD_ONLY)


def compute_policy_loss(
    name: str, tokens: PolicyTokens, parameters: Mapping[str, Any]
) -> TokenLoss:
    """Compute a policy loss.

    Args:
        name: A key of `LOSSES`.
        tokens: The micro-batch.
        parameters: By name; those that the loss does not use are passed over.

    Raises:
        UserError: If there is no such loss.
    """
    loss = find_loss(name)
    return loss(tokens, **{key: parameters[key] for key in parameters_of(loss)})


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


def _unclipped(loss_N: Tensor, ratio_N: Tensor) -> TokenLoss:
    never_N = torch.zeros_like(ratio_N, dtype=torch.bool)
    return TokenLoss(loss=loss_N, ratio=ratio_N.detach(), clipped_low=never_N, clipped_high=never_N)
