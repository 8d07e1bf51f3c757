"""Chunked log-probabilities and entropies against plain ones, values and gradients."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from grpo.learner.logprobs import compute_logprobs

VECTORS = json.loads((Path(__file__).parent / "data" / "algorithm_vectors.json").read_text())


@pytest.fixture
def inputs():
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(7, 5, dtype=torch.float64, generator=generator)
    weight = torch.randn(11, 5, dtype=torch.float64, generator=generator)
    bias = torch.randn(11, dtype=torch.float64, generator=generator)
    targets = torch.randint(11, (7,), generator=generator)
    for tensor in (hidden, weight, bias):
        tensor.requires_grad_()
    return hidden, weight, bias, targets


def plain(hidden, weight, bias, targets, temperature):
    logits = hidden @ weight.T
    if bias is not None:
        logits = logits + bias
    distribution = torch.distributions.Categorical(logits=logits / temperature)
    return distribution.log_prob(targets), distribution.entropy()


@pytest.mark.parametrize("temperature", [0.7, 1.0])
@pytest.mark.parametrize("rows", [1, 3, 7, 100])
@pytest.mark.parametrize("with_bias", [False, True])
def test_equals_the_plain_computation(inputs, temperature, rows, with_bias):
    hidden, weight, bias, targets = inputs
    bias = bias if with_bias else None
    got = compute_logprobs(
        hidden, weight, bias, targets, temperature=temperature, logits_per_chunk=11 * rows
    )
    wanted = plain(hidden, weight, bias, targets, temperature)
    mix = torch.linspace(-1, 2, 7, dtype=torch.float64)
    leaves = [tensor for tensor in (hidden, weight, bias) if tensor is not None]
    for got_part, wanted_part in zip(got, wanted, strict=True):
        torch.testing.assert_close(got_part, wanted_part, rtol=0, atol=1e-12)
        got_grads = torch.autograd.grad((mix * got_part).sum(), leaves, retain_graph=True)
        wanted_grads = torch.autograd.grad((mix * wanted_part).sum(), leaves, retain_graph=True)
        for got_grad, wanted_grad in zip(got_grads, wanted_grads, strict=True):
            torch.testing.assert_close(got_grad, wanted_grad, rtol=0, atol=1e-12)


def test_gradient_agrees_with_finite_differences(inputs):
    hidden, weight, bias, targets = inputs

    def compute(hidden, weight, bias):
        return compute_logprobs(hidden, weight, bias, targets, temperature=0.8, logits_per_chunk=33)

    assert torch.autograd.gradcheck(compute, (hidden, weight, bias))


def test_frozen_output_layer_gets_no_gradient(inputs):
    hidden, weight, _, targets = inputs
    logprobs, _ = compute_logprobs(hidden, weight.detach(), None, targets, temperature=1.0)
    logprobs.sum().backward()
    assert hidden.grad is not None
    assert weight.grad is None


def test_entropy_vector():
    vector = VECTORS["entropy"]
    logits = torch.tensor(vector["inputs"]["logits"], dtype=torch.float64)
    mask = torch.tensor(vector["inputs"]["mask"], dtype=torch.float64)
    identity = torch.eye(4, dtype=torch.float64)
    leaf = logits.requires_grad_()
    targets = torch.zeros(3, dtype=torch.long)
    _, entropy = compute_logprobs(leaf, identity, None, targets, temperature=1.0)
    expected = vector["expected"]
    assert entropy.tolist() == pytest.approx(expected["entropy"], abs=1e-10)
    mean = (entropy * mask).sum() / mask.sum()
    assert mean.item() == pytest.approx(expected["masked_mean"], abs=1e-10)


def test_no_targets_is_no_trouble(inputs):
    hidden, weight, bias, _ = inputs
    none = torch.zeros(0, dtype=torch.long)
    logprobs, entropies = compute_logprobs(hidden[:0], weight, bias, none, temperature=1.0)
    (logprobs.sum() + entropies.sum()).backward()
    assert logprobs.shape == entropies.shape == (0,)
    assert torch.equal(hidden.grad, torch.zeros_like(hidden))


def test_impossible_tokens_do_not_spoil_the_entropy_gradient():
    hidden = torch.tensor([[4000.0, -4000.0, 0.0]], requires_grad=True)
    targets = torch.tensor([0])
    logprobs, entropy = compute_logprobs(hidden, torch.eye(3), None, targets, temperature=1.0)
    (logprobs + entropy).sum().backward()
    assert logprobs.item() == 0.0
    assert entropy.item() == 0.0
    assert hidden.grad is not None
    assert hidden.grad.isfinite().all()


def test_the_gradient_of_bfloat16_weights_is_no_worse_for_being_summed_over_chunks():
    generator = torch.Generator().manual_seed(5)
    targets = torch.randint(64, (4096,), generator=generator)
    hidden = torch.randn(4096, 16, generator=generator).bfloat16()
    weight, bias = torch.randn(64, 16, generator=generator).bfloat16(), torch.zeros(64).bfloat16()

    def differentiate(dtype, rows):
        w, b = (tensor.to(dtype).requires_grad_() for tensor in (weight, bias))
        logprobs, _ = compute_logprobs(
            hidden.to(dtype), w, b, targets, temperature=1.0, logits_per_chunk=64 * rows
        )
        grads = torch.autograd.grad(logprobs.sum(), (w, b))
        assert {grad.dtype for grad in grads} == {dtype}
        return [grad.double() for grad in grads]

    exact = differentiate(torch.float64, 4096)
    for one, other, whole in zip(
        differentiate(torch.bfloat16, 8), differentiate(torch.bfloat16, 4096), exact, strict=True
    ):
        chunked, at_once = ((found - whole).norm() / whole.norm() for found in (one, other))
        assert chunked < 1.2 * at_once


def test_results_are_float32_for_a_bfloat16_model():
    hidden = torch.randn(4, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    weight = torch.randn(6, 8, generator=torch.Generator().manual_seed(1)).bfloat16()
    targets = torch.tensor([0, 1, 2, 3])
    logprobs, entropies = compute_logprobs(hidden, weight, None, targets, temperature=1.0)
    assert logprobs.dtype == entropies.dtype == torch.float32
    assert (
        torch.autograd.grad(
            compute_logprobs(hidden.requires_grad_(), weight, None, targets, temperature=1.0)[
                0
            ].sum(),
            hidden,
        )[0].dtype
        == torch.bfloat16
    )
