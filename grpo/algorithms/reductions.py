"""How much each token counts in the loss of a global batch.

A reduction is a weight for every sequence, applied to each of its tokens: the loss is the plain sum
of weight times token loss. The weights are fixed from the lengths of the whole batch before the
first backward pass, so every way of splitting the batch into micro-batches and ranks adds up to the
same loss and the same gradient.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence

from verifiers.errors import UserError

Weights = list[float]
Groups = Sequence[Hashable]


def token_mean(lengths: Sequence[int], groups: Groups, max_completion_length: int) -> Weights:
    """Every token of the batch counts the same (DAPO)."""
    del groups, max_completion_length
    total = sum(lengths)
    return [1 / total if length else 0.0 for length in lengths]


def sequence_mean(lengths: Sequence[int], groups: Groups, max_completion_length: int) -> Weights:
    """Every sequence counts the same, its tokens share its weight (the original GRPO)."""
    del groups, max_completion_length
    present = _num_present(lengths)
    return [1 / (present * length) if length else 0.0 for length in lengths]


def sequence_sum(lengths: Sequence[int], groups: Groups, max_completion_length: int) -> Weights:
    """Sum over tokens, mean over sequences: the gradient of whole sequences' log-probabilities."""
    del groups, max_completion_length
    present = _num_present(lengths)
    return [1 / present if length else 0.0 for length in lengths]


def constant(lengths: Sequence[int], groups: Groups, max_completion_length: int) -> Weights:
    """Sum over tokens over a constant, sequences times the longest completion (Dr. GRPO)."""
    del groups
    present = _num_present(lengths)
    return [1 / (present * max_completion_length) if length else 0.0 for length in lengths]


def prompt_mean(lengths: Sequence[int], groups: Groups, max_completion_length: int) -> Weights:
    """Every prompt counts the same, the tokens of all its completions share its weight."""
    del max_completion_length
    tokens: Counter[Hashable] = Counter()
    for length, group in zip(lengths, groups, strict=True):
        tokens[group] += length
    present = sum(1 for total in tokens.values() if total)
    return [
        1 / (present * tokens[group]) if length else 0.0
        for length, group in zip(lengths, groups, strict=True)
    ]


Reduction = Callable[[Sequence[int], Groups, int], Weights]

REDUCTIONS: Mapping[str, Reduction] = {
    "token_mean": token_mean,
    "sequence_mean": sequence_mean,
    "sequence_sum": sequence_sum,
    "constant": constant,
    "prompt_mean": prompt_mean,
}


def compute_token_weights(
    lengths: Sequence[int], *, groups: Groups, reduction: str, max_completion_length: int
) -> Weights:
    """Compute the weight of one token of each sequence.

    Args:
        lengths: Loss tokens of every sequence of the global batch; a sequence with none has weight
            0 and is not counted as a sequence either.
        groups: The group that each sequence belongs to.
        reduction: A key of `REDUCTIONS`.
        max_completion_length: The constant of `constant`.

    Raises:
        UserError: If there is no such reduction.

    Example:
        >>> compute_token_weights(
        ...     [1, 3], groups="aa", reduction="sequence_mean", max_completion_length=8
        ... )
        [0.5, 0.16666666666666666]
    """
    if reduction not in REDUCTIONS:
        raise UserError(
            f"loss_reduction={reduction!r} is no reduction: choose one of {', '.join(REDUCTIONS)}"
        )
    return REDUCTIONS[reduction](lengths, groups, max_completion_length)


def _num_present(lengths: Sequence[int]) -> int:
    return sum(1 for length in lengths if length)
