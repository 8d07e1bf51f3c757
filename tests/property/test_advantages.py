"""What holds for the advantages of any rewards."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo.algorithms.advantages import (
    ADVANTAGES,
    BATCH_BASELINE,
    UNCENTRED,
    Scaling,
    compute_advantages,
)
from grpo.algorithms.outcomes import Outcome, has_signal

REWARDS = st.lists(
    st.one_of(st.none(), st.floats(-2, 2, allow_subnormal=False).map(lambda x: round(x, 3))),
    max_size=9,
)
GROUPS = st.lists(REWARDS, max_size=5)
CASES = [
    ("grpo", "group"),
    ("grpo", "batch"),
    *[(name, "none") for name in ADVANTAGES],
    ("gdpo", "group"),
]


def compute(groups, case):
    """Advantages of plain rewards, each completion three tokens longer than the one before."""
    return compute_advantages(
        [
            [
                None if reward is None else Outcome(reward=reward, length=1 + 3 * place)
                for place, reward in enumerate(rewards)
            ]
            for rewards in groups
        ],
        estimator=case[0],
        scaling=Scaling(by=case[1]),
    )


@pytest.mark.parametrize("case", CASES, ids="-".join)
@given(groups=GROUPS)
def test_shape_is_kept_and_silent_groups_have_no_advantage(case, groups):
    for rewards, advantages in zip(groups, compute(groups, case), strict=True):
        assert [a is None for a in advantages] == [r is None for r in rewards]
        known = [a for a in advantages if a is not None]
        assert all(math.isfinite(a) for a in known)
        if not has_signal(rewards) and case[0] not in BATCH_BASELINE:
            assert set(known) <= {0.0}


@pytest.mark.parametrize("case", [c for c in CASES if c[0] not in UNCENTRED], ids="-".join)
@given(groups=GROUPS)
def test_every_group_sums_to_zero(case, groups):
    for advantages in compute(groups, case):
        known = [a for a in advantages if a is not None]
        scale = max([1.0, *(abs(a) for a in known)])
        assert abs(math.fsum(known)) <= 1e-8 * scale


# The estimators that look at lengths tell a group's members apart.
EXCHANGEABLE = [
    case
    for case in CASES
    if case[0] not in ("opo", "reinforce_plus_plus", "reinforce_plus_plus_baseline_tokens")
]


@pytest.mark.parametrize("case", EXCHANGEABLE, ids="-".join)
@given(groups=GROUPS, seed=st.integers(0, 2**32))
def test_order_of_members_does_not_matter(case, groups, seed):
    orders = [list(range(len(rewards))) for rewards in groups]
    for order in orders:
        random.Random(seed).shuffle(order)
    shuffled = [[g[i] for i in order] for g, order in zip(groups, orders, strict=True)]
    expected = [
        [a[i] for i in order] for a, order in zip(compute(groups, case), orders, strict=True)
    ]
    assert compute(shuffled, case) == expected


@pytest.mark.parametrize("case", CASES, ids="-".join)
@given(groups=GROUPS)
def test_better_rewards_have_no_smaller_advantages(case, groups):
    for rewards, advantages in zip(groups, compute(groups, case), strict=True):
        if not has_signal(rewards):
            continue
        pairs = [
            (r, a)
            for r, a in zip(rewards, advantages, strict=True)
            if r is not None and a is not None
        ]
        ranked = [a for _, a in sorted(pairs)]
        assert ranked == sorted(ranked)


@given(
    rewards=st.lists(st.floats(-2, 2).map(lambda x: round(x, 3)), min_size=2, max_size=9),
    shift=st.floats(-5, 5),
)
def test_a_constant_added_to_all_rewards_changes_nothing(rewards, shift):
    moved = [r + shift for r in rewards]
    for case in (("grpo", "none"), ("grpo", "group"), ("rloo", "none")):
        for one, two in zip(compute([rewards], case)[0], compute([moved], case)[0], strict=True):
            assert one == pytest.approx(two, abs=1e-6)
