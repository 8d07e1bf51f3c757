"""KL estimators: gradients, equality and clamping; the vectors have the numbers."""

from __future__ import annotations

import pytest
import torch

from grpo.algorithms.kl import KL_ESTIMATORS, LOG_RATIO_LIMIT, estimate_kl
from verifiers.errors import UserError


def double(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("estimator", KL_ESTIMATORS)
def test_gradient_equals_finite_differences(estimator):
    logprobs_N = double([-0.1, -1.3, -2.7]).requires_grad_()
    reference_N, old_N = double([-0.4, -1.1, -2.9]), double([-0.2, -1.5, -2.6])

    def values(logprobs):
        return estimate_kl(logprobs, reference_N, old_N, estimator=estimator).values

    assert torch.autograd.gradcheck(values, (logprobs_N,), eps=1e-6, atol=1e-7)


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
