"""Advantages: worked numbers, and the treatment of unverified members and silent groups."""

from __future__ import annotations

from typing import Any

import pytest

from grpo.algorithms.advantages import (
    ADVANTAGES,
    BATCH_BASELINE,
    SCALED,
    Scaling,
    compute_advantages,
)
from grpo.algorithms.outcomes import Outcome
from verifiers.errors import UserError


def compute(groups, estimator, **scaling: Any) -> Any:
    """Advantages of plain rewards; None is an unverified member."""
    settings: dict[str, Any] = {"by": "group" if estimator in SCALED else "none"} | scaling
    return compute_advantages(
        [[None if r is None else Outcome(reward=r) for r in group] for group in groups],
        estimator=estimator,
        scaling=Scaling(**settings),
    )


@pytest.mark.parametrize("estimator", ADVANTAGES)
def test_unverified_members_leave_the_statistics(estimator):
    with_gap = compute([[1.0, None, 0.0, 1.0]], estimator)
    without = compute([[1.0, 0.0, 1.0]], estimator)
    assert with_gap[0][1] is None
    assert [a for a in with_gap[0] if a is not None] == without[0]
    assert any(without[0])


@pytest.mark.parametrize("estimator", [name for name in ADVANTAGES if name not in BATCH_BASELINE])
@pytest.mark.parametrize("rewards", [[], [None, None], [1.0, None], [0.5, 0.5, 0.5]])
def test_group_without_signal_teaches_nothing(estimator, rewards):
    result = compute([rewards, [1.0, 0.0, 0.0]], estimator)
    assert result[0] == [None if r is None else 0.0 for r in rewards]
    assert any(result[1])


def test_float_noise_is_no_signal():
    assert compute([[0.3, 0.3, 0.3, 0.3000004]], "grpo", epsilon=1e-6) == [[0.0] * 4]


def test_baseline_of_the_batch_teaches_from_groups_that_are_all_right_or_all_wrong():
    right, wrong = compute([[1.0, 1.0], [0.0, 0.0]], "reinforce_plus_plus")
    assert right == pytest.approx([0.866, 0.866], abs=1e-3)
    assert wrong == pytest.approx([-0.866, -0.866], abs=1e-3)


def test_one_reward_under_gdpo_is_grpo_with_a_last_whitening():
    groups = [[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]]
    flat = [a for group in compute(groups, "grpo") for a in group]
    whitened = [a for group in compute(groups, "gdpo") for a in group]
    factor = whitened[0] / flat[0]
    assert whitened == pytest.approx([factor * a for a in flat])


def test_a_narrow_reward_is_heard_beside_a_wide_one_under_gdpo():
    parts = (((1.0, 1.0), (1.0, 0.0)), ((1.0, 0.0), (1.0, 0.01)), ((1.0, 0.0), (1.0, 0.0)))
    group = [Outcome(reward=sum(w * v for w, v in each), parts=each) for each in parts]
    one, other, _ = compute_advantages([group], estimator="gdpo", scaling=Scaling(epsilon=1e-6))[0]
    assert one == pytest.approx(other, abs=1e-3)
    one, other, _ = compute_advantages([group], estimator="grpo", scaling=Scaling(epsilon=1e-6))[0]
    assert one is not None
    assert other is not None
    assert one > 0.9 > -0.4 > other


def test_long_answers_move_the_baseline_of_opo_more():
    group = [Outcome(reward=1.0, length=9), Outcome(reward=0.0, length=1)]
    found = compute_advantages([group], estimator="opo", scaling=Scaling(by="none"))
    assert found == [pytest.approx([0.1, -0.9])]


def test_unknown_estimator_names_the_known_ones():
    with pytest.raises(UserError, match="choose one of grpo, rloo"):
        compute([[1.0, 0.0]], "grop")


@pytest.mark.parametrize("estimator", [name for name in ADVANTAGES if name not in SCALED])
def test_scale_that_would_be_ignored_is_refused(estimator):
    with pytest.raises(UserError, match="contradicts advantage_estimator"):
        compute([[1.0, 0.0]], estimator, by="group")
