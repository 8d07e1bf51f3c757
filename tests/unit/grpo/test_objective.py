"""From configuration to objective and rewards: options arrive, contradictions are named."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import pytest

from grpo.algorithms.advantages import ADVANTAGES, SCALED, Scaling
from grpo.algorithms.losses import NO_RATIO, SEQUENCE_LEVEL
from grpo.algorithms.mismatch import IMPORTANCE_SAMPLING
from grpo.algorithms.objective import Objective
from grpo.algorithms.presets import PRESETS
from grpo.assemble import BatchPolicy, assemble_batch, group_teaches
from grpo.config.schema import RunConfig
from grpo.metrics import compute_waste
from grpo.objective import make_objective, make_reward_policy
from grpo.values import Rollout, ScoredGroup, ScoredRollout
from verifiers.errors import UserError
from verifiers.problem import Problem
from verifiers.verdict import Reason, Status, Verdict

# One setting of every part of an objective that differs from its default, and what it needs beside.
SETTINGS = {
    "advantage_estimator": ("gdpo", {}),
    "scale_rewards": ("batch", {}),
    "std_ddof": (0, {}),
    "std_epsilon": (1e-6, {}),
    "policy_loss": ("sapo", {}),
    "loss_reduction": ("prompt_mean", {}),
    "epsilon": (0.1, {}),
    "epsilon_high": (0.4, {}),
    "delta": (5.0, {}),
    "sapo_temperature_pos": (2.0, {"loss_type": "sapo"}),
    "sapo_temperature_neg": (2.0, {"loss_type": "sapo"}),
    "vespo_k_pos": (1.0, {"loss_type": "vespo"}),
    "vespo_lambda_pos": (1.0, {"loss_type": "vespo"}),
    "vespo_k_neg": (1.0, {"loss_type": "vespo"}),
    "vespo_lambda_neg": (1.0, {"loss_type": "vespo"}),
    "dppo_kl_tau": (0.1, {"loss_type": "dppo"}),
    "old_logprobs": ("sampler", {}),
    "kl_placement": ("reward", {}),
    "kl_estimator": ("k2", {}),
    "importance_sampling": ("sequence_mask", {}),
    "importance_min": (0.5, {}),
    "importance_max": (math.inf, {}),
    "importance_normalise": (True, {}),
    "rejection_sampling": ("token_k3", {"rejection_max": 1.0}),
    "rejection_min": (0.5, {"rejection_sampling": "sequence_product"}),
    "rejection_max": (0.5, {"rejection_sampling": "sequence_k3"}),
    "off_policy_mask_threshold": (0.1, {}),
}


def make_config(**options) -> RunConfig:
    return RunConfig.model_validate({"model": "m", "data": {"path": "a.jsonl"}, **options})


def test_every_part_of_an_objective_has_an_option():
    assert set(SETTINGS) == {field.name for field in fields(Objective)}


@pytest.mark.parametrize("name", SETTINGS)
def test_an_option_reaches_the_objective(name):
    value, beside = SETTINGS[name]
    assert getattr(make_objective(make_config(**beside, **{name: value})), name) == value


@pytest.mark.parametrize("loss_type", PRESETS)
def test_the_sampler_is_corrected_for_by_default_where_that_means_something(loss_type):
    for staleness in (0, 2):
        objective = make_objective(make_config(loss_type=loss_type, max_staleness=staleness))
        if PRESETS[loss_type].old_logprobs == "sampler":
            expected = "off"
        elif PRESETS[loss_type].policy_loss in SEQUENCE_LEVEL:
            expected = "sequence_truncate" if staleness else "off"
        else:
            expected = "token_truncate"
        assert objective.importance_sampling == expected


@pytest.mark.parametrize("options", [{"loss_type": "luspo"}, {"loss_type": "grpo"}])
def test_a_loss_of_whole_completions_takes_no_weights_of_tokens(options):
    config = {**options, "policy_loss": "gspo", "loss_reduction": "sequence_mean"}
    for mode in IMPORTANCE_SAMPLING:
        if mode.startswith("token"):
            with pytest.raises(UserError, match=f"'{mode}' contradicts policy_loss='gspo'"):
                make_objective(make_config(**config, importance_sampling=mode))
        else:
            objective = make_objective(make_config(**config, importance_sampling=mode))
            assert objective.importance_sampling == mode
    assert make_objective(make_config(**config)).importance_sampling == "off"


@pytest.mark.parametrize("nucleus", [{"top_p": 0.9}, {"top_k": 20}, {"min_p": 0.1}])
def test_a_nucleus_has_no_correction_by_default_and_refuses_one(nucleus):
    assert make_objective(make_config(**nucleus)).importance_sampling == "off"
    ((key, value),) = nucleus.items()
    for options in (
        {"importance_sampling": "token_mask"},
        {"old_logprobs": "sampler"},
        {"rejection_sampling": "token_k3", "rejection_max": 1.0},
        {"off_policy_mask_threshold": 0.1},
        {"loss_type": "decoupled_ppo"},
    ):
        with pytest.raises(UserError, match=rf"contradicts {key}={value}"):
            make_objective(make_config(**nucleus, **options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss_type": "gpro"}, "loss_type='gpro' is unknown"),
        ({"kl_target": 0.1}, "kl_target=0.1 has no effect with beta=0"),
        (
            {"num_mini_batches": 9, "prompts_per_step": 4},
            "num_mini_batches=9 is more than prompts_per_step=4",
        ),
        ({"loss_type": "rloo", "scale_rewards": "group"}, "'group' contradicts .*'rloo'"),
        ({"beta": 0.1, "kl_estimator": "k1"}, "kl_estimator='k1' contradicts kl_placement='loss'"),
        (
            {"kl_placement": "reward", "kl_estimator": "k3_ratio"},
            "kl_estimator='k3_ratio' contradicts kl_placement='reward'",
        ),
    ],
)
def test_contradictions_are_named(options, message):
    with pytest.raises(UserError, match=message):
        make_objective(make_config(**options))


@pytest.mark.parametrize("updates", [{"num_iterations": 2}, {"num_mini_batches": 4}])
@pytest.mark.parametrize("loss_type", PRESETS)
def test_several_updates_need_a_loss_that_sees_the_policy_change(loss_type, updates):
    ((key, value),) = updates.items()
    config = make_config(loss_type=loss_type, **updates)
    if PRESETS[loss_type].policy_loss in NO_RATIO:
        with pytest.raises(
            UserError, match=rf"{key}={value} makes several.*contradicts policy_loss"
        ):
            make_objective(config)
    else:
        make_objective(config)


def test_a_buffer_as_long_as_a_completion_is_refused():
    with pytest.raises(UserError, match="overlong_buffer=8 leaves no unpunished length"):
        make_reward_policy(make_config(overlong_buffer=8, max_completion_length=8))


def test_evaluation_is_paid_by_the_verdict_alone():
    config = make_config(
        rewards={"weights": {"format": 1.0}}, overlong_buffer=4, max_completion_length=8
    )
    shaped, plain = make_reward_policy(config), make_reward_policy(config, shaped=False)
    assert (shaped.weights, shaped.overlong_buffer) == ({"format": 1.0}, 4)
    assert (plain.weights, plain.overlong_buffer) == ({}, 0)
    assert plain.values == shaped.values


def make_member(member: int, parts, problem_id="p") -> ScoredRollout:
    rollout = Rollout(
        problem_id=problem_id,
        member=member,
        prompt_ids=(1,),
        completion_ids=(2, 3),
        logprobs=(-0.1, -0.1),
        text="",
        finish_reason="stop",
        policy_versions=(0, 0),
        seed=0,
    )
    verdict = Verdict(status=Status.CORRECT, score=1.0, reason=Reason.ACCEPTED, verifier="t@1")
    return ScoredRollout(
        rollout=rollout,
        verdict=verdict,
        reward=sum(weight * value for weight, value in parts),
        reward_parts=parts,
    )


@pytest.mark.parametrize("estimator", ADVANTAGES)
def test_no_group_with_an_advantage_is_left_out(estimator):
    """Equal rewards, equal totals of unequal parts, unequal rewards: all parts of a step agree."""
    rows = {
        "equal": [((1.0, 1.0), (1.0, 0.0))] * 3,
        "parts": [((1.0, 1.0), (1.0, 0.0)), ((1.0, 0.0), (1.0, 1.0)), ((1.0, 0.0), (1.0, 1.0))],
        "totals": [((1.0, 1.0), (1.0, 1.0)), ((1.0, 0.0), (1.0, 0.0)), ((1.0, 0.0), (1.0, 0.0))],
    }
    groups = [
        ScoredGroup(
            problem=Problem(id=name, prompt="?", verifier="t", reference="1", source="f:1"),
            members=tuple(make_member(i, part, name) for i, part in enumerate(parts)),
        )
        for name, parts in rows.items()
    ]
    keep = BatchPolicy(
        advantage_estimator=estimator,
        scaling=Scaling(by="group" if estimator in SCALED else "none"),
        drop_groups_without_signal=False,
        mask_truncated=False,
    )
    everything, _ = assemble_batch(groups, step=1, policy=keep)
    teaching = {sample.problem_id for sample in everything.samples if sample.advantage != 0}
    drop = replace(keep, drop_groups_without_signal=True)
    batch, dropped = assemble_batch(groups, step=1, policy=drop)
    left_out = 3 * (3 - len(teaching))
    assert {sample.problem_id for sample in batch.samples} == teaching
    assert dropped == ({"no_signal": left_out} if left_out else {})
    assert {g.problem.id for g in groups if group_teaches(g, estimator)} == teaching
    waste = compute_waste(groups, left_out={}, policy=drop)
    assert waste["waste/no_signal"] == pytest.approx(left_out / 9)


def test_several_rewards_reach_the_advantages_and_the_batch():
    problem = Problem(id="p", prompt="?", verifier="t", reference="1", source="f:1")
    parts = [((1.0, 1.0), (0.5, 0.0)), ((1.0, 0.0), (0.5, 0.1)), ((1.0, 0.0), (0.5, 0.0))]
    group = ScoredGroup(
        problem=problem, members=tuple(make_member(i, part) for i, part in enumerate(parts))
    )
    policy = BatchPolicy(
        advantage_estimator="gdpo",
        scaling=Scaling(epsilon=1e-9),
        drop_groups_without_signal=True,
        mask_truncated=False,
    )
    batch, _ = assemble_batch([group, group], step=1, policy=policy)
    first, second, third = batch.samples[:3]
    assert first.advantage > 0 > third.advantage
    # The second reward has half the weight of the first, however narrow its range.
    assert second.advantage == pytest.approx(0.0, abs=1e-6)
    assert [sample.reward_parts for sample in batch.samples] == parts * 2
    # The problem is there twice, and its groups stay apart.
    assert [sample.group for sample in batch.samples] == [0, 0, 0, 1, 1, 1]
