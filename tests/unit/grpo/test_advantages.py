"""Advantages against published formulas, worked numbers and the treatment of unverified members."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpo.algorithms.advantages import ADVANTAGES, compute_advantages, has_signal
from verifiers.errors import UserError

VECTORS = json.loads((Path(__file__).parent / "data" / "algorithm_vectors.json").read_text())


def split(values: list[float], group: list[int]) -> list[list[float]]:
    """Cut a flat list into its groups."""
    return [
        [v for v, g in zip(values, group, strict=True) if g == wanted]
        for wanted in dict.fromkeys(group)
    ]


@pytest.mark.parametrize(
    ("name", "estimator", "scale"),
    [
        ("adv_grpo_group_std_ddof1_eps1e-4", "grpo", "group"),
        ("adv_dr_grpo_mean_only", "grpo", "none"),
        ("adv_batch_std", "grpo", "batch"),
        ("adv_rloo", "rloo", "none"),
        ("adv_rfpp_baseline_seq", "reinforce_plus_plus_baseline", "none"),
        ("adv_maxrl", "max_rl", "none"),
    ],
)
def test_agrees_with_vector(name, estimator, scale):
    vector = VECTORS[name]
    groups = split(vector["inputs"]["rewards"], vector["inputs"]["group"])
    flat = [
        a for g in compute_advantages(groups, estimator=estimator, scale_rewards=scale) for a in g
    ]
    assert flat == pytest.approx(vector["expected"], abs=1e-10)


def test_gpg_scales_by_the_informative_share():
    vector = VECTORS["adv_gpg_paper"]
    groups = split(vector["inputs"]["rewards"], vector["inputs"]["group"])
    flat = [a for g in compute_advantages(groups, estimator="gpg", scale_rewards="none") for a in g]
    assert flat == pytest.approx(vector["expected"]["adv"], abs=1e-10)


def test_zero_spread_is_decided_with_a_tolerance():
    vector = VECTORS["zero_variance_filter"]
    rewards, size = vector["inputs"]["rewards"], vector["inputs"]["group_size"]
    groups = [rewards[i : i + size] for i in range(0, len(rewards), size)]
    assert [has_signal(group) for group in groups] == vector["expected"]["keep"]
    assert compute_advantages(groups)[3] == [0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("estimator", ADVANTAGES)
def test_unverified_members_leave_the_statistics(estimator):
    scale = "group" if estimator == "grpo" else "none"
    with_gap = compute_advantages([[1.0, None, 0.0, 1.0]], estimator=estimator, scale_rewards=scale)
    without = compute_advantages([[1.0, 0.0, 1.0]], estimator=estimator, scale_rewards=scale)
    assert with_gap[0][1] is None
    assert [a for a in with_gap[0] if a is not None] == without[0]
    assert any(without[0])


@pytest.mark.parametrize("estimator", ADVANTAGES)
@pytest.mark.parametrize("rewards", [[], [None, None], [1.0, None], [0.5, 0.5, 0.5]])
def test_group_without_signal_teaches_nothing(estimator, rewards):
    scale = "group" if estimator == "grpo" else "none"
    groups = [rewards, [1.0, 0.0, 0.0]]
    result = compute_advantages(groups, estimator=estimator, scale_rewards=scale)
    assert result[0] == [None if r is None else 0.0 for r in rewards]
    assert any(result[1])


def test_unknown_estimator_names_the_known_ones():
    with pytest.raises(UserError, match="choose one of grpo, rloo"):
        compute_advantages([[1.0, 0.0]], estimator="grop")


@pytest.mark.parametrize("estimator", [name for name in ADVANTAGES if name != "grpo"])
def test_scale_that_would_be_ignored_is_refused(estimator):
    with pytest.raises(UserError, match="contradicts advantage"):
        compute_advantages([[1.0, 0.0]], estimator=estimator, scale_rewards="group")
