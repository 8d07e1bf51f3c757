"""The value loss of an actor-critic, for those who add a critic; the trainer has none.

Its advantages are `grpo.algorithms.token_advantages.compute_gae`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueLoss:
    """What the critic's loss says about every token; every tensor has shape N.

    Attributes:
        loss: Half the squared error, the larger of the clipped and the unclipped one.
        clipped: Where the clipped one was the larger.
    """

    loss: Tensor
    clipped: Tensor


def compute_value_loss(
    values_N: Tensor, old_values_N: Tensor, returns_N: Tensor, *, clip_range: float
) -> ValueLoss:
    """PPO's value loss: a value may not profit from moving further than `clip_range`.

    Args:
        values_N: Of the critic being trained; carries the gradient.
        old_values_N: Of the critic before the first update on this batch.
        returns_N: What it should have said: advantage plus old value.
        clip_range: How far a value may move; infinity does not clip.
    """
    bounded_N = torch.clamp(values_N, old_values_N - clip_range, old_values_N + clip_range)
    free_N, held_N = (values_N - returns_N).square(), (bounded_N - returns_N).square()
    return ValueLoss(loss=torch.maximum(free_N, held_N) / 2, clipped=held_N > free_N)
