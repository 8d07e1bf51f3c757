"""Policy losses, reductions and presets: gradients, and settings that contradict each other."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
import torch

from grpo.algorithms.losses import (
    LOSSES,
    NO_RATIO,
    PolicyTokens,
    compute_policy_loss,
    find_loss,
)
from grpo.algorithms.presets import PRESETS, resolve_objective
from grpo.algorithms.reductions import REDUCTIONS
from tests.token_weights import compute_shares
from verifiers.errors import UserError

PARAMETERS = asdict(PRESETS["dapo"]) | {"epsilon_high": 1.5}
# Their gradient is not the loss's derivative: the weight in front of log p is held still.
DETACHED = ("cispo", "vespo")
LENGTHS = [3, 1, 4, 2]


def make_tokens(seed: int = 0) -> PolicyTokens:
    generator = torch.Generator().manual_seed(seed)
    total, lengths = sum(LENGTHS), torch.tensor(LENGTHS)
    old = -3 * torch.rand(total, dtype=torch.float64, generator=generator)
    noise = 0.4 * torch.randn(total, dtype=torch.float64, generator=generator)
    advantages = torch.randn(len(LENGTHS), dtype=torch.float64, generator=generator)
    return PolicyTokens(
        logprobs=(old + noise).requires_grad_(),
        old_logprobs=old,
        advantages=advantages.repeat_interleave(lengths),
        sequence=torch.arange(len(LENGTHS)).repeat_interleave(lengths),
        num_sequences=len(LENGTHS),
    )


def weigh(lengths, reduction, groups=None):
    return compute_shares(
        lengths,
        groups=groups or range(len(lengths)),
        reduction=reduction,
        max_completion_length=8,
    )


@pytest.mark.parametrize("name", LOSSES)
def test_on_policy_gradient_is_the_policy_gradient(name):
    off_policy = make_tokens()
    tokens = replace(off_policy, old_logprobs=off_policy.logprobs.detach())
    result = compute_policy_loss(name, tokens, PARAMETERS)
    weights_N = torch.tensor(weigh(LENGTHS, "sequence_mean"), dtype=torch.float64)[tokens.sequence]
    (gradient_N,) = torch.autograd.grad((weights_N * result.loss).sum(), tokens.logprobs)
    torch.testing.assert_close(gradient_N, -weights_N * tokens.advantages, rtol=0, atol=1e-12)
    assert torch.equal(result.ratio, torch.ones_like(result.ratio))


@pytest.mark.parametrize("name", LOSSES)
def test_the_gradient_depends_on_how_far_the_policy_moved_where_there_is_a_ratio(name):
    tokens = make_tokens()
    gradients = [
        torch.autograd.grad(compute_policy_loss(name, each, PARAMETERS).loss.sum(), each.logprobs)
        for each in (tokens, replace(tokens, old_logprobs=tokens.logprobs.detach()))
    ]
    assert torch.equal(gradients[0][0], gradients[1][0]) is (name in NO_RATIO)


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in DETACHED])
@pytest.mark.parametrize("seed", range(3))
def test_gradient_equals_finite_differences(name, seed):
    tokens = make_tokens(seed)

    def loss(logprobs):
        return compute_policy_loss(name, replace(tokens, logprobs=logprobs), PARAMETERS).loss

    assert torch.autograd.gradcheck(loss, (tokens.logprobs,), eps=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", DETACHED)
def test_a_detached_weight_has_no_gradient_of_its_own(name):
    tokens = make_tokens()
    loss_N = compute_policy_loss(name, tokens, PARAMETERS).loss
    (gradient_N,) = torch.autograd.grad(loss_N.sum(), tokens.logprobs)
    torch.testing.assert_close(gradient_N, (loss_N / tokens.logprobs).detach())


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_masked_sequences_have_no_weight_and_take_none(reduction):
    with_gap = weigh([3, 0, 5], reduction)
    without = weigh([3, 5], reduction)
    assert [with_gap[0], with_gap[2]] == without
    assert with_gap[1] == 0.0
    assert weigh([0, 0], reduction) == [0.0, 0.0]


def test_every_prompt_counts_the_same_under_prompt_mean():
    weights = weigh([2, 6, 4, 0], "prompt_mean", groups="aabb")
    assert weights == pytest.approx([1 / 16, 1 / 16, 1 / 8, 0.0])


def test_every_preset_resolves_to_itself():
    for name, preset in PRESETS.items():
        assert resolve_objective(name) == preset
        assert resolve_objective(name, {"epsilon": None, "delta": None}) == preset


def test_each_placement_of_the_kl_has_the_estimator_whose_gradient_is_right_there():
    assert resolve_objective("dapo").kl_estimator == "k3_ratio"
    assert resolve_objective("dapo", {"kl_placement": "reward"}).kl_estimator == "k1"
    assert resolve_objective("rloo").kl_estimator == "k1"
    assert resolve_objective("rloo", {"kl_placement": "loss"}).kl_estimator == "k3_ratio"


def test_epsilon_moves_both_sides_of_a_symmetric_clip_only():
    assert resolve_objective("grpo", {"epsilon": 0.1}).epsilon_high == 0.1
    assert resolve_objective("dapo", {"epsilon": 0.1}).epsilon_high == 0.28


@pytest.mark.parametrize(
    ("loss_type", "overrides", "message"),
    [
        ("gpro", {}, "loss_type='gpro' is unknown: choose one of grpo"),
        (
            "rloo",
            {"scale_rewards": "group"},
            "scale_rewards='group' contradicts advantage_estimator='rloo'",
        ),
        ("gdpo", {"scale_rewards": "batch"}, "contradicts advantage_estimator='gdpo'"),
        ("dr_grpo", {"std_epsilon": 1e-6}, "std_epsilon=1e-06 has no effect with scale_rewards"),
        ("gspo", {"loss_reduction": "token_mean"}, "contradicts policy_loss='gspo'"),
        ("cispo", {"epsilon_high": 0.28}, "does not fit policy_loss='cispo'"),
        ("cispo", {"delta": 9.0}, "delta has no effect with loss_type='cispo'"),
        ("gpg", {"epsilon_high": 0.2}, "epsilon_high has no effect with loss_type='gpg'"),
        ("dapo", {"vespo_k_pos": 1.0}, "vespo_k_pos has no effect with loss_type='dapo'"),
        (
            "rloo",
            {"kl_estimator": "k3_ratio"},
            "kl_estimator='k3_ratio' contradicts kl_placement='reward'",
        ),
        ("aipo", {"importance_sampling": "token_mask"}, "contradicts old_logprobs='sampler'"),
        ("grpo", {"importance_max": 3.0}, "importance_max=3.0 has no effect with importance_samp"),
        ("grpo", {"rejection_max": 3.0}, "rejection_max=3.0 has no effect with rejection_samp"),
        (
            "grpo",
            {"importance_sampling": "token_mask", "importance_min": 5.0},
            "importance_min=5.0 and importance_max=2.0 leave nothing between them",
        ),
        ("grpo", {"rejection_sampling": "token_k3"}, "rejects nothing without bounds"),
        ("grpo", {"delta": 1.1}, "delta=1.1 must be above"),
        ("grpo", {"epsilon": 1.0}, "epsilon=1.0 must be"),
        ("grpo", {"epsilon_high": -0.1}, "epsilon_high=-0.1 must not be negative"),
        ("grpo", {"policy_loss": "ppo"}, "policy_loss='ppo' is unknown"),
        ("grpo", {"colour": 1}, "colour is no part of an objective"),
    ],
)
def test_contradictions_are_refused_by_name(loss_type, overrides, message):
    with pytest.raises(UserError, match=message):
        resolve_objective(loss_type, overrides)


def test_unknown_names_are_refused():
    with pytest.raises(UserError, match="choose one of ppo_clip"):
        find_loss("vanilla")
    with pytest.raises(UserError, match="choose one of token_mean"):
        weigh([1], "mean")
