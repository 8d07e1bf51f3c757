"""KL estimators: values, gradients, and what the gradients are in expectation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from grpo.algorithms.kl import KL_ESTIMATORS, LOG_RATIO_LIMIT, estimate_kl
from verifiers.errors import UserError

VECTORS = json.loads((Path(__file__).parent / "data" / "algorithm_vectors.json").read_text())


def double(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_values_and_gradients_per_token(estimator):
    vector = VECTORS["kl_estimators_token"]
    mask_S_T = double(vector["inputs"]["mask"]).bool()
    new_N = double(vector["inputs"]["logp_new"])[mask_S_T].requires_grad_()
    reference_N = double(vector["inputs"]["logp_ref"])[mask_S_T]
    result = estimate_kl(new_N, reference_N, new_N.detach(), estimator=estimator)
    expected = vector["expected"]
    torch.testing.assert_close(
        result.values, double(expected[estimator])[mask_S_T], rtol=0, atol=1e-10
    )
    (gradient_N,) = torch.autograd.grad(result.values.sum(), new_N)
    torch.testing.assert_close(
        gradient_N, double(expected[f"grad_{estimator}"])[mask_S_T], rtol=0, atol=1e-10
    )
    assert result.num_clamped == 0


def expected_gradient(estimator: str, *, on_policy: bool) -> torch.Tensor:
    """Gradient with respect to the logits, averaged exactly over the four possible samples."""
    inputs = VECTORS["kl_expected_gradients_categorical"]["inputs"]
    logits = double(inputs["logits"]).requires_grad_()
    reference = double(inputs["ref_logits"]).log_softmax(-1)
    logprobs = logits.log_softmax(-1)
    behaviour = logprobs.detach()
    if not on_policy:
        behaviour = double(inputs["behaviour_logits"]).log_softmax(-1)
    values = estimate_kl(logprobs, reference, behaviour, estimator=estimator).values
    (gradient,) = torch.autograd.grad((behaviour.exp() * values).sum(), logits)
    return gradient


@pytest.mark.parametrize(
    ("estimator", "on_policy", "key"),
    [
        ("k1", True, "E_grad_k1_in_loss"),
        ("k2", True, "grad_reverse_kl"),
        ("k3", True, "grad_forward_kl"),
        ("k3_ratio", True, "grad_reverse_kl"),
        ("k2", False, "offpolicy_E_grad_k2_plain"),
        ("k3", False, "offpolicy_E_grad_k3_plain"),
        ("k3_ratio", False, "grad_reverse_kl"),
    ],
)
def test_expected_gradient(estimator, on_policy, key):
    expected = VECTORS["kl_expected_gradients_categorical"]["expected"][key]
    torch.testing.assert_close(
        expected_gradient(estimator, on_policy=on_policy), double(expected), rtol=0, atol=1e-10
    )


@pytest.mark.parametrize("estimator", KL_ESTIMATORS)
def test_equal_policies_have_no_divergence_and_no_pull(estimator):
    logprobs_N = double([-0.1, -2.0, -30.0]).requires_grad_()
    result = estimate_kl(logprobs_N, logprobs_N.detach(), logprobs_N.detach(), estimator=estimator)
    assert torch.equal(result.values, torch.zeros(3, dtype=torch.float64))
    (gradient_N,) = torch.autograd.grad(result.values.sum(), logprobs_N)
    pull = 1.0 if estimator == "k1" else 0.0
    assert torch.equal(gradient_N, torch.full((3,), pull, dtype=torch.float64))


@pytest.mark.parametrize("estimator", KL_ESTIMATORS)
def test_far_away_tokens_are_clamped_and_counted(estimator):
    logprobs_N = double([-90.0, -1.0, -0.5]).requires_grad_()
    reference_N = double([-1.0, -90.0, -0.6])
    result = estimate_kl(logprobs_N, reference_N, logprobs_N.detach(), estimator=estimator)
    assert result.num_clamped == 2
    assert result.values.isfinite().all()
    bound = torch.exp(double(LOG_RATIO_LIMIT)) + LOG_RATIO_LIMIT
    assert (result.values.abs() <= bound).all()


def test_unknown_estimator_names_the_known_ones():
    zero_N = double([0.0])
    with pytest.raises(UserError, match="choose one of k1, k2, k3, k3_ratio"):
        estimate_kl(zero_N, zero_N, zero_N, estimator="kl")
