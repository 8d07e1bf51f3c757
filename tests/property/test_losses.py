"""What holds for every policy loss and reduction."""

from __future__ import annotations

from dataclasses import asdict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grpo.algorithms.kl import estimate_kl
from grpo.algorithms.losses import LOSSES, PolicyTokens, compute_policy_loss
from grpo.algorithms.mismatch import (
    IMPORTANCE_SAMPLING,
    REJECTION_SAMPLING,
    compute_importance_weights,
    compute_kept,
)
from grpo.algorithms.objective import Objective
from grpo.algorithms.reductions import REDUCTIONS
from tests.token_weights import compute_shares

LENGTHS = st.lists(st.integers(0, 12), min_size=1, max_size=8)


def make_tokens(lengths: list[int], seed: int) -> PolicyTokens:
    generator = torch.Generator().manual_seed(seed)
    total = sum(lengths)
    old = -torch.rand(total, dtype=torch.float64, generator=generator) * 3
    noise = torch.randn(total, dtype=torch.float64, generator=generator) * 0.4
    advantages = torch.randn(len(lengths), dtype=torch.float64, generator=generator)
    counts = torch.tensor(lengths)
    return PolicyTokens(
        logprobs=(old + noise).requires_grad_(),
        old_logprobs=old,
        advantages=advantages.repeat_interleave(counts),
        sequence=torch.arange(len(lengths)).repeat_interleave(counts),
        num_sequences=len(lengths),
    )


@pytest.mark.parametrize("name", LOSSES)
@given(lengths=LENGTHS, seed=st.integers(0, 2**31))
def test_a_sequence_has_the_same_loss_alone_as_in_company(name, lengths, seed):
    parameters = asdict(Objective(epsilon_high=1.5))
    together = make_tokens(lengths, seed)
    losses = compute_policy_loss(name, together, parameters).loss
    for row in range(len(lengths)):
        mine = together.sequence == row
        alone = PolicyTokens(
            logprobs=together.logprobs[mine],
            old_logprobs=together.old_logprobs[mine],
            advantages=together.advantages[mine],
            sequence=torch.zeros(int(mine.sum()), dtype=torch.long),
            num_sequences=1,
        )
        torch.testing.assert_close(
            compute_policy_loss(name, alone, parameters).loss, losses[mine], rtol=0, atol=1e-12
        )


@given(lengths=LENGTHS, seed=st.integers(0, 2**31))
def test_clipping_never_lowers_the_loss(lengths, seed):
    tokens = make_tokens(lengths, seed)
    clipped = LOSSES["ppo_clip"](tokens, epsilon=0.2, epsilon_high=0.28, delta=None)
    unclipped = -clipped.ratio * tokens.advantages
    assert (clipped.loss >= unclipped - 1e-12).all()
    bounded = LOSSES["ppo_clip"](tokens, epsilon=0.2, epsilon_high=0.28, delta=2.0)
    assert (bounded.loss <= clipped.loss + 1e-12).all()


@given(lengths=LENGTHS, seed=st.integers(0, 2**31))
def test_clipped_tokens_and_no_others_lose_their_gradient(lengths, seed):
    tokens = make_tokens(lengths, seed)
    result = LOSSES["ppo_clip"](tokens, epsilon=0.2, epsilon_high=0.28, delta=None)
    (gradient,) = torch.autograd.grad(result.loss.sum(), tokens.logprobs)
    assert torch.equal(gradient == 0, result.clipped_low | result.clipped_high)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@given(lengths=LENGTHS, data=st.data())
def test_order_and_company_of_sequences_do_not_change_their_weights(reduction, lengths, data):
    groups = [place // 2 for place in range(len(lengths))]
    weights = compute_shares(lengths, groups=groups, reduction=reduction, max_completion_length=12)
    order = data.draw(st.permutations(range(len(lengths))))
    shuffled = compute_shares(
        [lengths[i] for i in order],
        groups=[groups[i] for i in order],
        reduction=reduction,
        max_completion_length=12,
    )
    assert shuffled == [weights[i] for i in order]
    total = sum(w * n for w, n in zip(weights, lengths, strict=True))
    if reduction in ("token_mean", "sequence_mean", "prompt_mean") and any(lengths):
        assert total == pytest.approx(1.0)


@given(seed=st.integers(0, 2**31))
def test_k3_is_never_negative(seed):
    generator = torch.Generator().manual_seed(seed)
    policy, reference = -30 * torch.rand(2, 50, dtype=torch.float64, generator=generator)
    for estimator in ("k2", "k3", "k3_ratio"):
        values = estimate_kl(policy, reference, policy, estimator=estimator).values
        assert (values >= 0).all()


@pytest.mark.parametrize("mode", IMPORTANCE_SAMPLING)
@given(lengths=LENGTHS, seed=st.integers(0, 2**31))
def test_importance_weights_stay_within_their_bounds_and_are_1_on_policy(mode, lengths, seed):
    tokens = make_tokens(lengths, seed)
    place = (tokens.sequence, tokens.num_sequences)
    options = {"mode": mode, "low": 0.5, "high": 2.0}
    log_ratio = tokens.logprobs - tokens.old_logprobs
    weights = compute_importance_weights(log_ratio, *place, **options)
    assert not weights.requires_grad
    assert ((weights == 0) | ((weights >= 0.5) & (weights <= 2.0))).all()
    same = compute_importance_weights(torch.zeros_like(log_ratio), *place, **options)
    assert torch.equal(same, torch.ones_like(same))


@pytest.mark.parametrize("mode", REJECTION_SAMPLING)
@given(lengths=LENGTHS, seed=st.integers(0, 2**31))
def test_rejection_keeps_what_is_on_policy_and_whole_sequences(mode, lengths, seed):
    tokens = make_tokens(lengths, seed)
    place = (tokens.sequence, tokens.num_sequences)
    # Around what the statistic says of equal policies: 0 for a divergence, 1 for a ratio.
    bounds = {"low": -0.1, "high": 0.1} if mode.endswith("k3") else {"low": 0.9, "high": 1.1}
    log_ratio = (tokens.logprobs - tokens.old_logprobs).detach()
    assert compute_kept(torch.zeros_like(log_ratio), *place, mode=mode, **bounds).all()
    kept = compute_kept(log_ratio, *place, mode=mode, **bounds)
    if mode.startswith("sequence"):
        for row in range(tokens.num_sequences):
            assert len(kept[tokens.sequence == row].unique()) <= 1
