import itertools
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo.evaluation.estimators import bootstrap_mean, clopper_pearson, compute_pass_at_k


@given(st.data())
def test_pass_at_k_is_the_mean_over_all_subsets(data):
    n = data.draw(st.integers(1, 8))
    c = data.draw(st.integers(0, n))
    k = data.draw(st.integers(1, n))
    outcomes = [True] * c + [False] * (n - c)
    subsets = [any(subset) for subset in itertools.combinations(outcomes, k)]
    assert compute_pass_at_k(n, c, k) == pytest.approx(statistics.fmean(subsets), abs=1e-12)


@pytest.mark.parametrize("k", [0, 5])
def test_a_k_that_cannot_be_estimated_is_refused(k):
    with pytest.raises(ValueError, match="cannot be estimated"):
        compute_pass_at_k(4, 1, k)


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=40))
def test_a_bootstrap_interval_holds_its_mean_and_repeats(values):
    low, high = bootstrap_mean(values, seed=0)
    assert low <= statistics.fmean(values) + 1e-9
    assert high >= statistics.fmean(values) - 1e-9
    assert (low, high) == bootstrap_mean(values, seed=0)


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        (15, 30, 0.3130, 0.6870),
        (0, 30, 0.0, 0.1157),
        (30, 30, 0.8843, 1.0),
        (1, 500, 5.06e-5, 0.0111),
    ],
)
def test_clopper_pearson_agrees_with_tables(successes, trials, low, high):
    found = clopper_pearson(successes, trials)
    assert found == pytest.approx((low, high), abs=1e-4)
