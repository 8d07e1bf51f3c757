"""Losses on pairs and on single judged answers (DPO, IPO, KTO), as pure functions.

The trainer optimises rewards and does not use them; they are here to be compared with, on the same
log-probabilities. Shape `_P` runs over pairs or answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional


def sigmoid_loss(margin_P: Tensor, *, beta: float, label_smoothing: float = 0.0) -> Tensor:
    """DPO (arXiv 2305.18290); with label smoothing, the share of labels that are wrong, cDPO.

    Args:
        margin_P: log-ratio of the chosen less that of the rejected answer, each of policy to
            reference.
        beta: How fast a margin saturates.
        label_smoothing: Expected share of swapped labels.
    """
    right_P = functional.logsigmoid(beta * margin_P)
    swapped_P = functional.logsigmoid(-beta * margin_P)
    return -(1 - label_smoothing) * right_P - label_smoothing * swapped_P


def hinge_loss(margin_P: Tensor, *, beta: float) -> Tensor:
    """What a margin falls short of 1 / beta, times beta (SLiC, arXiv 2305.10425)."""
    return torch.relu(1 - beta * margin_P)


def ipo_loss(margin_P: Tensor, *, beta: float) -> Tensor:
    """Squared distance of the margin from 1 / (2 beta) (IPO, arXiv 2310.12036).

    TRL takes the margin of log-ratios averaged over tokens, the paper that of their sums.
    """
    return (margin_P - 1 / (2 * beta)).square()


PREFERENCE_LOSSES: Mapping[str, Callable[..., Tensor]] = {
    "sigmoid": sigmoid_loss,
    "hinge": hinge_loss,
    "ipo": ipo_loss,
}


def compute_kto_loss(
    log_ratio_P: Tensor,
    desirable_P: Tensor,
    mismatched_log_ratio_P: Tensor,
    *,
    beta: float,
    desirable_weight: float = 1.0,
    undesirable_weight: float = 1.0,
) -> Tensor:
    """KTO (arXiv 2402.01306): an answer is compared with the policy's own divergence.

    Args:
        log_ratio_P: Of policy to reference, of each answer.
        desirable_P: Whether it is a good one.
        mismatched_log_ratio_P: The same of answers to other prompts; their mean, not below 0,
            estimates the divergence.
        beta: How fast a difference saturates.
        desirable_weight: Of good answers.
        undesirable_weight: Of bad ones.

    Returns:
        The weighted loss of each answer.
    """
    divergence = mismatched_log_ratio_P.detach().mean().clamp(min=0)
    ahead_P = beta * (log_ratio_P - divergence)
    good_P = desirable_weight * (1 - torch.sigmoid(ahead_P))
    return torch.where(desirable_P, good_P, undesirable_weight * (1 - torch.sigmoid(-ahead_P)))
