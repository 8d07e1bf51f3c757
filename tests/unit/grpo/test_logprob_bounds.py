"""How far sampler and learner may lie apart: noise passes at any length, a shift does not."""

from __future__ import annotations

import math

import pytest
import torch

from grpo.learner.invariants import RARITY, REFERENCE_BOUNDS, SAMPLER_BOUNDS, LogprobBound

LENGTHS = (1, 2, 3, 8, 32, 256, 4096, 100_000)


@pytest.mark.parametrize("num_tokens", LENGTHS)
def test_noise_of_the_assumed_kind_is_let_pass_however_many_tokens_there_are(num_tokens):
    """The mean of n exponential distances has a gamma distribution, whose tail is known."""
    allowed = LogprobBound(mean=1.0).allow(num_tokens)
    shape = torch.tensor(float(num_tokens), dtype=torch.float64)
    chance = torch.special.gammaincc(shape, shape * allowed).item()
    assert chance <= math.exp(-RARITY)


def test_a_run_of_short_completions_in_bfloat16_is_not_stopped():
    """Half a million completions of one to three tokens, with noise as large as is provided for."""
    bound = SAMPLER_BOUNDS["bfloat16"]
    generator = torch.Generator().manual_seed(0)
    for num_tokens in (1, 2, 3):
        noise = torch.empty(500_000, num_tokens).exponential_(1 / bound.mean, generator=generator)
        worst = noise.mean(1).max().item()
        assert bound.mean < worst < bound.allow(num_tokens) < bound.worst


@pytest.mark.parametrize("bounds", [SAMPLER_BOUNDS, REFERENCE_BOUNDS])
def test_more_tokens_never_allow_more_and_no_mean_exceeds_the_worst_token(bounds):
    for bound in bounds.values():
        allowed = [bound.allow(num_tokens) for num_tokens in LENGTHS]
        assert allowed == sorted(allowed, reverse=True)
        assert bound.mean <= allowed[-1] <= allowed[0] <= bound.worst
