"""What holds for every policy loss and reduction."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo.algorithms.kl import estimate_kl
from grpo.algorithms.losses import LOSSES, PolicyTokens
from grpo.algorithms.reductions import REDUCTIONS, compute_token_weights

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
@settings(deadline=None)
@given(lengths=LENGTHS, seed=st.integers(0, 2**31))
def test_a_sequence_has_the_same_loss_alone_as_in_company(name, lengths, seed):
    settings = {"epsilon": 0.2, "epsilon_high": 1.5, "delta": None}
    together = make_tokens(lengths, seed)
    losses = LOSSES[name](together, **settings).loss
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
            LOSSES[name](alone, **settings).loss, losses[mine], rtol=0, atol=1e-12
        )


@settings(deadline=None)
@given(lengths=LENGTHS, seed=st.integers(0, 2**31))
def test_clipping_never_lowers_the_loss(lengths, seed):
    tokens = make_tokens(lengths, seed)
    clipped = LOSSES["ppo_clip"](tokens, epsilon=0.2, epsilon_high=0.28, delta=None)
    unclipped = -clipped.ratio * tokens.advantages
    assert (clipped.loss >= unclipped - 1e-12).all()
    bounded = LOSSES["ppo_clip"](tokens, epsilon=0.2, epsilon_high=0.28, delta=2.0)
    assert (bounded.loss <= clipped.loss + 1e-12).all()


@settings(deadline=None)
@given(lengths=LENGTHS, seed=st.integers(0, 2**31))
def test_clipped_tokens_and_no_others_lose_their_gradient(lengths, seed):
    tokens = make_tokens(lengths, seed)
    result = LOSSES["ppo_clip"](tokens, epsilon=0.2, epsilon_high=0.28, delta=None)
    (gradient,) = torch.autograd.grad(result.loss.sum(), tokens.logprobs)
    assert torch.equal(gradient == 0, result.clipped_low | result.clipped_high)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@settings(deadline=None)
@given(lengths=LENGTHS, data=st.data())
def test_order_and_company_of_sequences_do_not_change_their_weights(reduction, lengths, data):
    weights = compute_token_weights(lengths, reduction=reduction, max_completion_length=12)
    order = data.draw(st.permutations(range(len(lengths))))
    shuffled = compute_token_weights(
        [lengths[i] for i in order], reduction=reduction, max_completion_length=12
    )
    assert shuffled == [weights[i] for i in order]
    total = sum(w * n for w, n in zip(weights, lengths, strict=True))
    if reduction in ("token_mean", "sequence_mean") and any(lengths):
        assert total == pytest.approx(1.0)


@settings(deadline=None)
@given(seed=st.integers(0, 2**31))
def test_k3_is_never_negative(seed):
    generator = torch.Generator().manual_seed(seed)
    policy, reference = -30 * torch.rand(2, 50, dtype=torch.float64, generator=generator)
    for estimator in ("k2", "k3", "k3_ratio"):
        values = estimate_kl(policy, reference, policy, estimator=estimator).values
        assert (values >= 0).all()
