"""Unbiased estimates from n samples of each problem, and their intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from grpo.seeding import make_numpy_random

Interval = tuple[float, float]
_RESAMPLES = 10_000


def compute_pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """Estimate without bias, from n samples, the chance that one of k fresh ones is right.

    `1 - C(n-c, k) / C(n, k)`; Chen et al. 2021, arXiv 2107.03374, equation 1.

    Raises:
        ValueError: k is larger than n, so nothing can be said without bias.

    Example:
        >>> compute_pass_at_k(4, 2, 1)
        0.5
    """
    if not 1 <= k <= num_samples:
        raise ValueError(f"pass@{k} cannot be estimated from {num_samples} samples")
    if num_samples - num_correct < k:
        return 1.0
    return 1.0 - math.prod(
        1.0 - k / i for i in range(num_samples - num_correct + 1, num_samples + 1)
    )


def bootstrap_mean(values: Sequence[float], *, seed: int, confidence: float = 0.95) -> Interval:
    """Percentile interval of a mean over problems, resampling problems.

    Args:
        values: One number for each problem. Samples of one problem are not independent, so they
            must not be passed singly.
        seed: Of the resampling.
        confidence: Coverage.
    """
    data = np.asarray(values, dtype=np.float64)
    draws = make_numpy_random(seed, "bootstrap").integers(
        0, len(data), size=(_RESAMPLES, len(data))
    )
    means = data[draws].mean(axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def clopper_pearson(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """Exact interval of a proportion of independent trials; for one sample a problem.

    Example:
        >>> low, high = clopper_pearson(15, 30)
        >>> round(low, 3), round(high, 3)
        (0.313, 0.687)
    """
    tail = (1 - confidence) / 2
    low = (
        0.0
        if successes == 0
        else _solve(lambda p: 1 - _binomial_cdf(successes - 1, trials, p), tail)
    )
    high = (
        1.0
        if successes == trials
        else _solve(lambda p: -_binomial_cdf(successes, trials, p), -tail)
    )
    return low, high


def _binomial_cdf(x: int, n: int, p: float) -> float:
    if p in (0.0, 1.0):
        return float(p == 0.0 or x >= n)
    log_p, log_q = math.log(p), math.log1p(-p)
    terms = (
        math.lgamma(n + 1)
        - math.lgamma(i + 1)
        - math.lgamma(n - i + 1)
        + i * log_p
        + (n - i) * log_q
        for i in range(x + 1)
    )
    return min(1.0, math.fsum(math.exp(term) for term in terms))


def _solve(increasing: Callable[[float], float], target: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):  # halves the bracket to below float precision
        middle = (low + high) / 2
        low, high = (middle, high) if increasing(middle) < target else (low, middle)
    return (low + high) / 2
