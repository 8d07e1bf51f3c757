"""What verdicts are worth: one reward, several, and the punishment of length."""

from __future__ import annotations

import pytest

from grpo.rewards import RewardPolicy, check_components, compute_reward
from verifiers.errors import UserError
from verifiers.verdict import Reason, Status, Verdict

VALUES = {Status.CORRECT: 1.0, Status.INCORRECT: -1.0, Status.NO_ANSWER: -2.0, Status.LIMIT: 0.0}


def make_verdict(
    status: Status = Status.CORRECT, score: float | None = 1.0, **components: float
) -> Verdict:
    return Verdict(
        status=status,
        score=score,
        reason=Reason.ACCEPTED,
        verifier="t@1",
        components=components,
    )


@pytest.mark.parametrize(
    ("status", "score", "expected"),
    [
        (Status.CORRECT, 1.0, 1.0),
        (Status.INCORRECT, 0.0, -1.0),
        (Status.INCORRECT, 0.5, 0.0),
        (Status.NO_ANSWER, 0.0, -2.0),
    ],
)
def test_a_status_has_its_value_and_a_graded_score_lies_between(status, score, expected):
    reward = compute_reward(make_verdict(status, score), 3, RewardPolicy(values=VALUES))
    assert reward is not None
    assert reward.total == expected
    assert reward.parts == ()


def test_what_was_not_verified_has_no_reward_whatever_is_paid_for():
    policy = RewardPolicy(values=VALUES, overlong_buffer=2, max_completion_length=4)
    assert compute_reward(make_verdict(Status.ERROR, None), 4, policy) is None


def test_length_is_punished_beside_the_verdict():
    policy = RewardPolicy(
        values=VALUES, overlong_buffer=4, overlong_penalty=0.5, max_completion_length=10
    )
    for length, punishment in ((6, 0.0), (8, -0.5), (10, -1.0)):
        reward = compute_reward(make_verdict(), length, policy)
        assert reward is not None
        assert reward.parts == ((1.0, 1.0), (0.5, punishment))
        assert reward.total == 1.0 + 0.5 * punishment


def test_several_components_are_weighted_and_one_that_is_lacking_counts_nothing():
    policy = RewardPolicy(values=VALUES, weights={"verdict": 1.0, "format": 0.5, "style": 2.0})
    reward = compute_reward(make_verdict(format=0.8), 3, policy)
    assert reward is not None
    assert reward.parts == ((1.0, 1.0), (0.5, 0.8), (2.0, 0.0))
    assert reward.total == pytest.approx(1.4)


def test_a_component_that_no_verdict_has_is_named_with_those_that_are_there():
    policy = RewardPolicy(values=VALUES, weights={"formt": 1.0})
    with pytest.raises(UserError, match=r"'formt'.*they have format, verdict"):
        check_components([make_verdict(format=1.0)], policy)
    check_components([make_verdict(Status.INCORRECT, 0.0)], policy)
