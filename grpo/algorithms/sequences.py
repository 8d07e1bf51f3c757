"""Sums and means over the tokens of each sequence of a micro-batch.

Shapes: `_N` runs over tokens, `_S` over sequences.
"""

from __future__ import annotations

import torch
from torch import Tensor


def sequence_sum(values_N: Tensor, sequence_N: Tensor, num_sequences: int) -> Tensor:
    """Sum over each sequence's tokens; shape S.

    Args:
        values_N: One value for each token.
        sequence_N: The sequence that it belongs to.
        num_sequences: How many there are, those without a token included.
    """
    return values_N.new_zeros(num_sequences).index_add(0, sequence_N, values_N)


def sequence_mean(values_N: Tensor, sequence_N: Tensor, num_sequences: int) -> Tensor:
    """Mean over each sequence's tokens, 0 where it has none; shape S."""
    count_S = sequence_sum(torch.ones_like(values_N), sequence_N, num_sequences)
    return sequence_sum(values_N, sequence_N, num_sequences) / count_S.clamp(min=1)
