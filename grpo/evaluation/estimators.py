"""Unbiased estimates from n samples of one problem."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from fractions import Fraction


def compute_pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """Estimate without bias, from n samples, the chance that one of k fresh ones is right.

    `1 - C(n-c, k) / C(n, k)`; Chen et al. 2021, arXiv 2107.03374, equation 1.

    Raises:
        ValueError: k is larger than n, so nothing can be said without bias.

    Example:
        >>> compute_pass_at_k(4, 2, 1)
        0.5
    """
    _check_k("pass@", num_samples, k)
    if num_samples - num_correct < k:
        return 1.0
    return 1.0 - math.prod(
        1.0 - k / i for i in range(num_samples - num_correct + 1, num_samples + 1)
    )


def compute_pass_hat_k(num_samples: int, num_correct: int, k: int) -> float:
    """Estimate without bias, from n samples, the chance that all of k fresh ones are right.

    `C(c, k) / C(n, k)`; Yao et al. 2024 (tau-bench), arXiv 2406.12045.

    Raises:
        ValueError: k is larger than n.

    Example:
        >>> compute_pass_hat_k(8, 6, 1)
        0.75
    """
    _check_k("pass^", num_samples, k)
    return math.comb(num_correct, k) / math.comb(num_samples, k)


def compute_maj_at_k(num_correct: int, wrong_votes: Sequence[int], num_blank: int, k: int) -> float:
    """The chance that a majority vote among k of the n samples, drawn at random, is right.

    Exact: the mean over all C(n, k) subsets, without listing them. Answers that tie for the most
    votes share the credit; samples without an answer do not vote, and a subset of only those is
    wrong.

    Args:
        num_correct: Samples with the right answer; they vote together.
        wrong_votes: Samples of each different wrong answer.
        num_blank: Samples without an answer.
        k: Size of the vote.

    Raises:
        ValueError: k is larger than n.

    Example:
        >>> compute_maj_at_k(3, [3, 1], 1, 8)
        0.5
    """
    num_samples = num_correct + sum(wrong_votes) + num_blank
    _check_k("maj@", num_samples, k)
    won = Fraction(0)
    for votes in range(1, min(num_correct, k) + 1):
        ways = math.comb(num_correct, votes)
        for num_tied, others in _count_beaten(wrong_votes, num_blank, k - votes, votes).items():
            won += Fraction(ways * others, num_tied + 1)
    return float(won / math.comb(num_samples, k))


def _count_beaten(
    wrong_votes: Sequence[int], num_blank: int, num_drawn: int, most: int
) -> Counter[int]:
    """Ways to draw samples so that no wrong answer has more than `most` votes, by answers at it."""
    # (samples drawn, wrong answers with exactly `most` votes) -> ways
    ways = Counter({(0, 0): 1})
    for available in wrong_votes:
        grown: defaultdict[tuple[int, int], int] = defaultdict(int)
        for (drawn, tied), count in ways.items():
            for votes in range(min(available, most, num_drawn - drawn) + 1):
                state = (drawn + votes, tied + (votes == most))
                grown[state] += count * math.comb(available, votes)
        ways = Counter(grown)
    beaten: Counter[int] = Counter()
    for (drawn, tied), count in ways.items():
        beaten[tied] += count * math.comb(num_blank, num_drawn - drawn)
    return beaten


def _check_k(name: str, num_samples: int, k: int) -> None:
    if not 1 <= k <= num_samples:
        raise ValueError(f"{name}{k} cannot be estimated from {num_samples} samples")
