"""How much each token counts in the loss of a global batch.

A reduction is a weight for every sequence, applied to each of its tokens: the loss is the plain sum
of weight times token loss. The weights are fixed from the lengths of the whole batch before the
first backward pass, so every way of splitting the batch into micro-batches and ranks adds up to the
same loss and the same gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from verifiers.errors import UserError

Weights = list[float]


def token_mean(lengths: Sequence[int], max_completion_length: int) -> Weights:
    """Every token of the batch counts the same (DAPO)."""
    del max_completion_length
    total = sum(lengths)
    return [1 / total if length else 0.0 for length in lengths]


def sequence_mean(lengths: Sequence[int], max_completion_length: int) -> Weights:
    """Every sequence counts the same, its tokens share its weight (the original GRPO)."""
    del max_completion_length
    present = _num_present(lengths)
    return [1 / (present * length) if length else 0.0 for length in lengths]


def sequence_sum(lengths: Sequence[int], max_completion_length: int) -> Weights:
    """Sum over tokens, mean over sequences: the gradient of whole sequences' log-probabilities."""
    del max_completion_length
    present = _num_present(lengths)
    return [1 / present if length else 0.0 for length in lengths]


def constant(lengths: Sequence[int], max_completion_length: int) -> Weights:
    """Sum over tokens over a constant, sequences times the longest completion (Dr. GRPO)."""
    present = _num_present(lengths)
    return [1 / (present * max_completion_length) if length else 0.0 for length in lengths]


Reduction = Callable[[Sequence[int], int], Weights]

REDUCTIONS: Mapping[str, Reduction] = {
    "token_mean": token_mean,
    "sequence_mean": sequence_mean,
    "sequence_sum": sequence_sum,
    "constant": constant,
}


def compute_token_weights(
    lengths: Sequence[int], *, reduction: str, max_completion_length: int
) -> Weights:
    """Compute the weight of one token of each sequence.

    Args:
        lengths: Loss tokens of every sequence of the global batch; a sequence with none has weight
            0 and is not counted as a sequence either.
        reduction: A key of `REDUCTIONS`.
        max_completion_length: The constant of `constant`.

    Raises:
        UserError: If there is no such reduction.

    Example:
        >>> compute_token_weights([1, 3], reduction="sequence_mean", max_completion_length=8)
        [0.5, 0.16666666666666666]
    """
    if reduction not in REDUCTIONS:
        raise UserError(
            f"loss_reduction={reduction!r} is no reduction: choose one of {', '.join(REDUCTIONS)}"
        )
    return REDUCTIONS[reduction](lengths, max_completion_length)


def _num_present(lengths: Sequence[int]) -> int:
    return sum(1 for length in lengths if length)
