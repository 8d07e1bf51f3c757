"""How much each token counts in the loss of a global batch.

A reduction is a weight for every sequence, applied to each of its tokens, over a normaliser of the
whole batch: the loss is the plain sum of weight times token loss, divided by it. The weight follows
from the sequence and its group alone, so that a gradient can be summed before the batch is whole,
and every way of splitting the batch into micro-batches and ranks adds up to the same one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from verifiers.errors import UserError

Weights = list[float]
Groups = Sequence[Hashable]
Lengths = Sequence[int]


class Place(NamedTuple):
    """Where a token stands.

    Attributes:
        sequence: Loss tokens of its sequence.
        group: Loss tokens of its group.
        longest: Tokens that a completion may have.
    """

    sequence: int
    group: int
    longest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """How token losses become one loss.

    Attributes:
        weigh: The weight of a token.
        count: The normaliser, from the loss tokens of every sequence and its group.
    """

    weigh: Callable[[Place], float]
    count: Callable[[Lengths, Groups], int]


def _one(place: Place) -> float:
    del place
    return 1.0


def _count_tokens(lengths: Lengths, groups: Groups) -> int:
    del groups
    return sum(lengths)


def _count_sequences(lengths: Lengths, groups: Groups) -> int:
    del groups
    return sum(1 for length in lengths if length)


def _count_groups(lengths: Lengths, groups: Groups) -> int:
    return sum(1 for total in _sum_by_group(lengths, groups).values() if total)


REDUCTIONS: Mapping[str, Reduction] = {
    # Every token of the batch counts the same (DAPO).
    "token_mean": Reduction(weigh=_one, count=_count_tokens),
    # Every sequence counts the same, its tokens share its weight (the original GRPO).
    "sequence_mean": Reduction(weigh=lambda place: 1 / place.sequence, count=_count_sequences),
    # Sum over tokens, mean over sequences: the gradient of whole sequences' log-probabilities.
    "sequence_sum": Reduction(weigh=_one, count=_count_sequences),
    # Sum over tokens over a constant, sequences times the longest completion (Dr. GRPO).
    "constant": Reduction(weigh=lambda place: 1 / place.longest, count=_count_sequences),
    # Every prompt counts the same, the tokens of all its completions share its weight.
    "prompt_mean": Reduction(weigh=lambda place: 1 / place.group, count=_count_groups),
}


def compute_token_weights(
    lengths: Lengths, *, groups: Groups, reduction: str, max_completion_length: int
) -> Weights:
    """Compute the weight of one token of each sequence, the normaliser not taken in yet.

    Args:
        lengths: Loss tokens of every sequence of some whole groups; a sequence with none has
            weight 0.
        groups: The group that each sequence belongs to.
        reduction: A key of `REDUCTIONS`.
        max_completion_length: The constant of `constant`.

    Raises:
        UserError: If there is no such reduction.

    Example:
        >>> compute_token_weights(
        ...     [1, 4], groups="aa", reduction="sequence_mean", max_completion_length=8
        ... )
        [1.0, 0.25]
    """
    weigh = find_reduction(reduction).weigh
    sums = _sum_by_group(lengths, groups)
    return [
        weigh(Place(length, sums[group], max_completion_length)) if length else 0.0
        for length, group in zip(lengths, groups, strict=True)
    ]


def count_normaliser(lengths: Lengths, *, groups: Groups, reduction: str) -> int:
    """Count what the weighted sum over a whole batch is divided by.

    Args:
        lengths: Loss tokens of every sequence of the global batch; one with none is not counted as
            a sequence either.
        groups: The group that each sequence belongs to.
        reduction: A key of `REDUCTIONS`.

    Raises:
        UserError: If there is no such reduction.

    Example:
        >>> count_normaliser([1, 4], groups="aa", reduction="sequence_mean")
        2
    """
    return find_reduction(reduction).count(lengths, groups)


def find_reduction(name: str) -> Reduction:
    """The reduction of a name.

    Raises:
        UserError: If there is none.
    """
    if name not in REDUCTIONS:
        raise UserError(
            f"loss_reduction={name!r} is no reduction: choose one of {', '.join(REDUCTIONS)}"
        )
    return REDUCTIONS[name]


def _sum_by_group(lengths: Lengths, groups: Groups) -> Counter[Hashable]:
    sums: Counter[Hashable] = Counter()
    for length, group in zip(lengths, groups, strict=True):
        sums[group] += length
    return sums
