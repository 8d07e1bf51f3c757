"""How sure a mean over problems is: intervals, standard errors and paired differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist

import numpy as np

from grpo.seeding import make_numpy_random

Interval = tuple[float, float]
_RESAMPLES = 10_000
_MIN_SPREAD = 5
_ROUNDING = 1e-9


def bootstrap_mean(values: Sequence[float], *, seed: int, confidence: float = 0.95) -> Interval:
    """Percentile interval of a mean over problems, resampling problems.

    Args:
        values: One number for each problem. Samples of one problem are not independent, so they
            must not be passed singly.
        seed: Of the resampling.
        confidence: Coverage.
    """
    means = _resample_means(values, seed)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def find_score_interval(values: Sequence[float], *, seed: int, single: bool) -> Interval:
    """Interval of a mean over problems of values from 0 to 1.

    Resampling is too sure where nearly all values are 0, or nearly all are 1: it sees no spread.
    Then, as with one sample a problem, the interval is Clopper and Pearson's of the sum. It is wide
    enough for any values, since none of the same mean spread more than 0 and 1 do.

    Args:
        values: One number for each problem.
        seed: Of the resampling.
        single: Whether each value is of one sample, and so 0 or 1.

    Example:
        >>> low, high = find_score_interval([0.0] * 100, seed=0, single=False)
        >>> round(low, 3), round(high, 3)
        (0.0, 0.036)
    """
    num_spread = min(sum(value != end for value in values) for end in (0.0, 1.0))
    if not single and num_spread >= _MIN_SPREAD:
        return bootstrap_mean(values, seed=seed)
    total = math.fsum(values)
    low, _ = clopper_pearson(math.floor(total + _ROUNDING), len(values))
    _, high = clopper_pearson(math.ceil(total - _ROUNDING), len(values))
    return low, high


def find_difference_interval(differences: Sequence[float], *, seed: int) -> Interval:
    """Interval of a mean difference over problems, each from -1 to 1.

    Where no problem differs, resampling would be sure that none ever does; the interval then
    reaches as far to both sides as the share of problems that differ may.

    Args:
        differences: One number for each problem.
        seed: Of the resampling.
    """
    if not any(differences):
        _, most = clopper_pearson(0, len(differences))
        return -most, most
    return bootstrap_mean(differences, seed=seed)


def bootstrap_p_value(differences: Sequence[float], *, seed: int) -> float:
    """Two-sided p-value of a mean difference: is it further from 0 than chance would take it?

    The differences are shifted to a mean of 0, where there is no effect, and problems are drawn
    again with replacement (Efron and Tibshirani 1993, section 16.4). One is added to both counts,
    so the value is never 0.

    Args:
        differences: One number for each problem.
        seed: Of the resampling.
    """
    data = np.asarray(differences, dtype=np.float64)
    observed = abs(data.mean())
    means = np.abs(_resample_means(data - data.mean(), seed))
    # Sums of the same numbers in another order may differ in their last digit.
    extreme = int(np.count_nonzero(means >= observed * (1 - 1e-9)))
    return (extreme + 1) / (_RESAMPLES + 1)


def compute_sign_test(num_better: int, num_worse: int) -> float:
    """Two-sided exact p-value of flips: is one direction as likely as the other (McNemar)?

    Example:
        >>> compute_sign_test(5, 0)
        0.0625
    """
    total = num_better + num_worse
    tail = sum(math.comb(total, i) for i in range(min(num_better, num_worse) + 1))
    return min(1.0, 2 * tail / 2**total)


def compute_clustered_se(values: Sequence[float]) -> float:
    """Standard error of a mean over problems, whose samples are a cluster each.

    Miller 2024, arXiv 2411.00640: the standard deviation of the problems' own means by the root of
    their number. Nothing can be said of one problem: NaN.

    Args:
        values: The mean of each problem.
    """
    if len(values) < 2:
        return math.nan
    return float(np.std(np.asarray(values, dtype=np.float64), ddof=1) / math.sqrt(len(values)))


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


def wilson(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """Score interval of the same proportion: narrower than the exact one, right on average.

    Example:
        >>> low, high = wilson(15, 30)
        >>> round(low, 3), round(high, 3)
        (0.332, 0.668)
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    rate, shrink = successes / trials, 1 + z * z / trials
    middle = (rate + z * z / (2 * trials)) / shrink
    half = z / shrink * math.sqrt(rate * (1 - rate) / trials + (z / (2 * trials)) ** 2)
    return middle - half, middle + half


def _resample_means(values: Sequence[float] | np.ndarray, seed: int) -> np.ndarray:
    data = np.asarray(values, dtype=np.float64)
    random = make_numpy_random(seed, "bootstrap")
    # In slices, so that a set of thousands of problems does not take gigabytes.
    slices = [
        data[random.integers(0, len(data), size=(100, len(data)))].mean(axis=1)
        for _ in range(_RESAMPLES // 100)
    ]
    return np.concatenate(slices)


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
