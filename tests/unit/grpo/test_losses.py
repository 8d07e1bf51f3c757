"""Policy losses and reductions: values and gradients against independent numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from grpo.algorithms.losses import LOSSES, PolicyTokens, find_loss
from grpo.algorithms.presets import PRESETS, resolve_objective
from grpo.algorithms.reductions import REDUCTIONS, compute_token_weights
from verifiers.errors import UserError

VECTORS = json.loads((Path(__file__).parent / "data" / "algorithm_vectors.json").read_text())


def double(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


class Flat:
    """A padded vector's inputs laid end to end, as the losses take them."""

    def __init__(self, inputs: dict):
        self.mask_S_T = double(inputs["mask"]).bool()
        self.lengths = self.mask_S_T.sum(1).tolist()
        self.logprobs_S_T = double(inputs["logp_new"]).requires_grad_()
        logprobs_N = self.logprobs_S_T[self.mask_S_T]
        old = inputs.get("logp_old", inputs["logp_new"])
        sequence_N = self.mask_S_T.nonzero()[:, 0]
        self.tokens = PolicyTokens(
            logprobs=logprobs_N,
            old_logprobs=double(old)[self.mask_S_T],
            advantages=double(inputs["advantages"])[sequence_N],
            sequence=sequence_N,
            num_sequences=len(self.lengths),
        )

    def reduce(self, loss_N: torch.Tensor, reduction: str, longest: int = 5) -> torch.Tensor:
        weights = compute_token_weights(
            self.lengths, reduction=reduction, max_completion_length=longest
        )
        return (double(weights)[self.tokens.sequence] * loss_N).sum()

    def gradient(self, loss: torch.Tensor) -> torch.Tensor:
        (gradient,) = torch.autograd.grad(loss, self.logprobs_S_T)
        return gradient


@pytest.mark.parametrize(
    ("name", "reduction"),
    [
        ("ppo_clip_seq-mean-token-mean", "sequence_mean"),
        ("ppo_clip_token-mean", "token_mean"),
        ("ppo_clip_seq-mean-token-sum-norm", "constant"),
        ("ppo_clip_seq-mean-token-sum", "sequence_sum"),
    ],
)
def test_ppo_clip_under_every_reduction(name, reduction):
    vector = VECTORS[name]
    flat = Flat(vector["inputs"])
    result = LOSSES["ppo_clip"](flat.tokens, epsilon=0.2, epsilon_high=0.2, delta=None)
    loss = flat.reduce(result.loss, reduction, vector["inputs"]["max_len"])
    assert loss.item() == pytest.approx(vector["expected"]["loss"], abs=1e-10)
    torch.testing.assert_close(
        flat.gradient(loss), double(vector["expected"]["grad_logp_new"]), rtol=0, atol=1e-10
    )


def test_clip_higher_and_its_clip_fractions():
    vector = VECTORS["ppo_clip_higher_token_mean"]
    flat = Flat(vector["inputs"])
    result = LOSSES["ppo_clip"](flat.tokens, epsilon=0.2, epsilon_high=0.28, delta=None)
    expected = vector["expected"]
    assert flat.reduce(result.loss, "token_mean").item() == pytest.approx(
        expected["loss"], abs=1e-10
    )
    torch.testing.assert_close(
        result.ratio, double(expected["ratio"])[flat.mask_S_T], rtol=0, atol=1e-10
    )
    assert result.clipped_low.double().mean().item() == expected["clip_frac_low"]
    assert result.clipped_high.double().mean().item() == pytest.approx(expected["clip_frac_high"])


@pytest.mark.parametrize(
    ("delta", "key"), [(None, "no_dual"), (3.0, "dual_clip_c3"), (4.0, "two_sided_delta4")]
)
def test_delta_bounds_the_loss_of_negative_advantages(delta, key):
    vector = VECTORS["dual_clip"]
    ratio_N = double(vector["inputs"]["ratio"])
    tokens = PolicyTokens(
        logprobs=ratio_N.log(),
        old_logprobs=torch.zeros_like(ratio_N),
        advantages=torch.full_like(ratio_N, vector["inputs"]["advantage"]),
        sequence=torch.arange(3),
        num_sequences=3,
    )
    result = LOSSES["ppo_clip"](tokens, epsilon=0.2, epsilon_high=0.2, delta=delta)
    assert result.loss.tolist() == pytest.approx(vector["expected"][key], abs=1e-10)


def test_gspo():
    vector = VECTORS["gspo"]
    flat = Flat(vector["inputs"])
    expected = vector["expected"]
    low, high = vector["inputs"]["wide"]
    wide = LOSSES["gspo"](flat.tokens, epsilon=low, epsilon_high=high, delta=None)
    loss = flat.reduce(wide.loss, "sequence_mean")
    assert loss.item() == pytest.approx(expected["loss_wide"], abs=1e-10)
    torch.testing.assert_close(
        flat.gradient(loss), double(expected["grad_wide"]), rtol=0, atol=1e-10
    )
    preset = resolve_objective("gspo")
    paper = LOSSES["gspo"](
        flat.tokens, epsilon=preset.epsilon, epsilon_high=preset.epsilon_high, delta=None
    )
    assert flat.reduce(paper.loss, "sequence_mean").item() == pytest.approx(
        expected["loss_paper_eps"], abs=1e-10
    )


def test_cispo_keeps_every_gradient():
    vector = VECTORS["cispo_trl"]
    flat = Flat(vector["inputs"])
    preset = resolve_objective("cispo")
    result = LOSSES["cispo"](
        flat.tokens, epsilon=preset.epsilon, epsilon_high=preset.epsilon_high, delta=None
    )
    loss = flat.reduce(result.loss, "token_mean")
    assert loss.item() == pytest.approx(vector["expected"]["loss_token_mean"], abs=1e-10)
    torch.testing.assert_close(
        flat.gradient(loss), double(vector["expected"]["grad_logp_new"]), rtol=0, atol=1e-10
    )


def test_reinforce():
    vector = VECTORS["reinforce_token_mean"]
    flat = Flat(vector["inputs"])
    result = LOSSES["reinforce"](flat.tokens, epsilon=0.2, epsilon_high=0.2, delta=None)
    loss = flat.reduce(result.loss, "token_mean")
    assert loss.item() == pytest.approx(vector["expected"]["loss"], abs=1e-10)
    torch.testing.assert_close(
        flat.gradient(loss), double(vector["expected"]["grad_logp_new"]), rtol=0, atol=1e-10
    )


@pytest.mark.parametrize("name", LOSSES)
def test_on_policy_gradient_is_the_policy_gradient(name):
    flat = Flat(VECTORS["ppo_clip_token-mean"]["inputs"])
    tokens = PolicyTokens(
        logprobs=flat.tokens.logprobs,
        old_logprobs=flat.tokens.logprobs.detach(),
        advantages=flat.tokens.advantages,
        sequence=flat.tokens.sequence,
        num_sequences=flat.tokens.num_sequences,
    )
    result = LOSSES[name](tokens, epsilon=0.2, epsilon_high=5.0, delta=None)
    weights_N = double(
        compute_token_weights(flat.lengths, reduction="sequence_mean", max_completion_length=5)
    )[tokens.sequence]
    (gradient_N,) = torch.autograd.grad((weights_N * result.loss).sum(), flat.logprobs_S_T)
    torch.testing.assert_close(
        gradient_N[flat.mask_S_T], -weights_N * tokens.advantages, rtol=0, atol=1e-12
    )
    assert torch.equal(result.ratio, torch.ones_like(result.ratio))


def test_global_normaliser_survives_ranks_and_accumulation():
    vector = VECTORS["global_token_normalisation"]
    ranks = vector["inputs"]["micro_losses"]
    sequences = [sequence for rank in ranks for sequence in rank]
    weights = compute_token_weights(
        [len(s) for s in sequences], reduction="token_mean", max_completion_length=5
    )
    total = sum(w * sum(s) for w, s in zip(weights, sequences, strict=True))
    assert total == pytest.approx(vector["expected"]["correct"], abs=1e-12)
    assert weights == pytest.approx([vector["expected"]["token_grad_weight_correct"]] * 4)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_masked_sequences_have_no_weight_and_take_none(reduction):
    with_gap = compute_token_weights([3, 0, 5], reduction=reduction, max_completion_length=8)
    without = compute_token_weights([3, 5], reduction=reduction, max_completion_length=8)
    assert [with_gap[0], with_gap[2]] == without
    assert with_gap[1] == 0.0
    assert compute_token_weights([0, 0], reduction=reduction, max_completion_length=8) == [0.0, 0.0]


def test_every_preset_resolves_to_itself():
    for name, preset in PRESETS.items():
        assert resolve_objective(name) == preset
        assert resolve_objective(name, {"epsilon": None, "delta": None}) == preset


def test_epsilon_moves_both_sides_of_a_symmetric_clip_only():
    assert resolve_objective("grpo", {"epsilon": 0.1}).epsilon_high == 0.1
    assert resolve_objective("dapo", {"epsilon": 0.1}).epsilon_high == 0.28


@pytest.mark.parametrize(
    ("loss_type", "overrides", "message"),
    [
        ("gpro", {}, "loss_type='gpro' is unknown: choose one of grpo"),
        ("rloo", {"scale_rewards": "group"}, "scale_rewards='group' contradicts advantage='rloo'"),
        ("gspo", {"loss_reduction": "token_mean"}, "contradicts policy_loss='gspo'"),
        ("cispo", {"epsilon_high": 0.28}, "does not fit policy_loss='cispo'"),
        ("cispo", {"epsilon": 0.2}, "epsilon has no effect here"),
        ("gpg", {"epsilon_high": 0.2}, "epsilon_high has no effect here"),
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
        compute_token_weights([1], reduction="mean", max_completion_length=1)
