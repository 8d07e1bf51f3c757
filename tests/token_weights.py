"""What one token of each sequence counts in the loss of a whole batch."""

from __future__ import annotations

from grpo.algorithms.reductions import compute_token_weights, count_normaliser


def compute_shares(lengths, *, groups, reduction, max_completion_length) -> list[float]:
    """Weights over their normaliser; all 0 where there is nothing to learn from."""
    weights = compute_token_weights(
        lengths, groups=groups, reduction=reduction, max_completion_length=max_completion_length
    )
    normaliser = count_normaliser(lengths, groups=groups, reduction=reduction)
    return [weight / (normaliser or 1) for weight in weights]
