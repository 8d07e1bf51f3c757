import itertools
import statistics
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo.evaluation.estimators import compute_maj_at_k, compute_pass_at_k, compute_pass_hat_k
from grpo.evaluation.intervals import bootstrap_mean, clopper_pearson


@given(st.data())
def test_estimates_are_means_over_all_subsets(data):
    n = data.draw(st.integers(1, 8))
    c = data.draw(st.integers(0, n))
    k = data.draw(st.integers(1, n))
    outcomes = [True] * c + [False] * (n - c)
    subsets = list(itertools.combinations(outcomes, k))
    for compute, meets in ((compute_pass_at_k, any), (compute_pass_hat_k, all)):
        expected = statistics.fmean(meets(subset) for subset in subsets)
        assert compute(n, c, k) == pytest.approx(expected, abs=1e-12)


@given(st.lists(st.sampled_from(["right", "a", "b", "c", None]), min_size=1, max_size=8), st.data())
def test_maj_at_k_is_the_mean_over_all_subsets(answers, data):
    k = data.draw(st.integers(1, len(answers)))

    def credit(subset):
        votes = Counter(answer for answer in subset if answer is not None)
        most = max(votes.values(), default=0)
        winners = [answer for answer, count in votes.items() if count == most]
        return ("right" in winners) / len(winners) if winners else 0.0

    expected = statistics.fmean(map(credit, itertools.combinations(answers, k)))
    wrong = [answers.count(answer) for answer in "abc" if answer in answers]
    found = compute_maj_at_k(answers.count("right"), wrong, answers.count(None), k)
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("k", [0, 5])
def test_a_k_that_cannot_be_estimated_is_refused(k):
    for estimate in (compute_pass_at_k, compute_pass_hat_k):
        with pytest.raises(ValueError, match="cannot be estimated"):
            estimate(4, 1, k)
    with pytest.raises(ValueError, match="cannot be estimated"):
        compute_maj_at_k(1, [2], 1, k)


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
