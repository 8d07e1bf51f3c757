"""Advantages that differ from token to token of one completion.

Shapes: `_N` runs over the tokens of all completions, laid end to end; `_S` over completions.
"""

from __future__ import annotations

import torch
from torch import Tensor

WHITENING_EPSILON = 1e-8


def compute_gae(
    rewards_N: Tensor, values_N: Tensor, lengths_S: Tensor, *, gamma: float, lam: float
) -> Tensor:
    """Generalised advantage estimation (arXiv 1506.02438) along each completion.

    With values of 0 and lam = 1 it is the discounted sum of the rewards from each token on, which
    is how REINFORCE++ spreads a KL penalty over the tokens that earned it.

    Args:
        rewards_N: Reward at each token.
        values_N: The critic's value before each token; 0 after the last.
        lengths_S: Tokens of each completion. Tokens that the policy did not write are not among
            them: the estimate passes over an observation as if it were not there.
        gamma: Discount for each token.
        lam: Trade-off between bias (0) and variance (1).

    Returns:
        Advantages, shape N.
    """
    rewards_S_T, mask_S_T = _pad(rewards_N, lengths_S)
    values_S_T, _ = _pad(values_N, lengths_S)
    advantages_S_T = torch.zeros_like(rewards_S_T)
    carried_S = next_value_S = rewards_S_T.new_zeros(len(lengths_S))
    for t in reversed(range(rewards_S_T.shape[1])):
        present_S = mask_S_T[:, t]
        error_S = rewards_S_T[:, t] + gamma * next_value_S - values_S_T[:, t]
        carried_S = torch.where(present_S, error_S + gamma * lam * carried_S, carried_S)
        next_value_S = torch.where(present_S, values_S_T[:, t], next_value_S)
        advantages_S_T[:, t] = carried_S
    return advantages_S_T[mask_S_T]


def spread_rewards(
    rewards_S: Tensor, penalties_N: Tensor, lengths_S: Tensor, *, gamma: float = 1.0
) -> Tensor:
    """Each token's return: a penalty at every token, the completion's reward at its last one.

    Args:
        rewards_S: Reward of each completion.
        penalties_N: What is taken off at each token, such as beta times its KL.
        lengths_S: Tokens of each completion; none of them 0.
        gamma: Discount for each token.
    """
    token_rewards_N = -penalties_N
    last_S = lengths_S.cumsum(0) - 1
    token_rewards_N = token_rewards_N.index_add(0, last_S, rewards_S.to(token_rewards_N.dtype))
    zeros_N = torch.zeros_like(token_rewards_N)
    return compute_gae(token_rewards_N, zeros_N, lengths_S, gamma=gamma, lam=1.0)


def whiten(values_N: Tensor, *, count: float, total: float, squares: float) -> Tensor:
    """Whiten values by the moments of the whole batch, of which they may be a part.

    Args:
        values_N: What is whitened.
        count: Number of values of the batch.
        total: Their sum.
        squares: The sum of their squares.
    """
    mean = total / max(count, 1.0)
    variance = max(squares - count * mean**2, 0.0) / max(count - 1.0, 1.0)
    return (values_N - mean) / (variance + WHITENING_EPSILON) ** 0.5


def _pad(values_N: Tensor, lengths_S: Tensor) -> tuple[Tensor, Tensor]:
    """Rows padded on the right, and where they hold something."""
    longest = int(lengths_S.max()) if len(lengths_S) else 0
    mask_S_T = torch.arange(longest, device=values_N.device)[None] < lengths_S[:, None]
    padded_S_T = values_N.new_zeros(len(lengths_S), longest)
    padded_S_T[mask_S_T] = values_N
    return padded_S_T, mask_S_T
