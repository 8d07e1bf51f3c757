"""What verdicts are worth: one reward, several, and the punishment of length."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo.metrics import compute_rollout_metrics
from grpo.rewards import RewardPolicy, check_components, compute_reward
from grpo.values import Rollout, ScoredGroup, ScoredRollout
from verifiers.errors import UserError
from verifiers.problem import Problem
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


def make_group(verifier: str, policy: RewardPolicy, *verdicts: Verdict) -> ScoredGroup:
    rewards = [compute_reward(verdict, 10, policy) for verdict in verdicts]
    rollout = Rollout(
        problem_id="p",
        member=0,
        prompt_ids=(1,),
        completion_ids=(2,) * 10,
        logprobs=(-1.0,) * 10,
        text="",
        finish_reason="length",
        policy_versions=(0,) * 10,
        seed=0,
    )
    return ScoredGroup(
        problem=Problem(id="p", prompt="", verifier=verifier, reference="1", source="rows:1"),
        members=tuple(
            ScoredRollout(
                rollout=replace(rollout, member=member),
                verdict=verdict,
                reward=reward.total if reward else None,
                reward_parts=reward.parts if reward else (),
            )
            for member, (verdict, reward) in enumerate(zip(verdicts, rewards, strict=True))
        ),
    )


def test_the_mean_of_each_reward_has_its_name():
    policy = RewardPolicy(
        values=VALUES,
        weights={"verdict": 1.0, "format": 0.5, "math": 2.0},
        overlong_buffer=5,
        max_completion_length=10,
    )
    known = [make_verdict(format=1.0, math=0.5), make_verdict(format=0.5, math=0.0)]
    groups = [
        make_group("math", policy, *known, make_verdict(Status.ERROR, None)),
        make_group("code", policy, make_verdict(Status.INCORRECT, 0.0)),
    ]
    metrics = compute_rollout_metrics(groups, reward_names=policy.part_names)
    means = {name: value for name, value in metrics.items() if name.startswith("rewards/")}
    assert means == pytest.approx(
        {
            "rewards/math/mean": 0.875,  # of the problems that this verifier judges
            "rewards/code/mean": -2.0,
            "rewards/verdict/mean": 1 / 3,
            "rewards/format/mean": 0.5,
            "rewards/math_part/mean": 1 / 6,
            "rewards/overlong/mean": -1.0,
        }
    )


def test_a_reward_without_parts_has_no_more_than_its_verifiers():
    policy = RewardPolicy(values=VALUES)
    metrics = compute_rollout_metrics(
        [make_group("math", policy, make_verdict())], reward_names=policy.part_names
    )
    assert [name for name in metrics if name.startswith("rewards/")] == ["rewards/math/mean"]
