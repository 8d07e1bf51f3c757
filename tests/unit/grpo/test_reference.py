"""The reference: frozen, following the policy, or kept away while it is not used."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch

from grpo.learner.learner import Learner
from grpo.learner.reference import PolicyCopy


def weights(module):
    return [weight.detach().clone() for weight in module.parameters()]


@pytest.fixture
def with_reference(options):
    return replace(options, beta=0.1, learning_rate=0.02)


def run(options, batch, updates):
    learner = Learner(options)
    assert isinstance(learner.reference, PolicyCopy)
    history = [(weights(learner.policy), weights(learner.reference.policy))]
    for _ in range(updates):
        learner.update(batch)
        history.append((weights(learner.policy), weights(learner.reference.policy)))
    return history


def assert_close(found, expected):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


def test_a_frozen_reference_never_moves(with_reference, samples, build):
    history = run(with_reference, build.batch(samples), updates=3)
    for _, reference in history:
        assert_close(reference, history[0][0])


def test_a_periodic_reference_becomes_the_policy(with_reference, samples, build):
    options = replace(with_reference, ref_model_sync_steps=2)
    history = run(options, build.batch(samples), updates=3)
    start, (_, first), (policy, second), (_, third) = history[0][0], *history[1:]
    assert_close(first, start)
    assert_close(second, policy)
    assert_close(third, policy)


def test_an_averaging_reference_follows_slowly(with_reference, samples, build):
    options = replace(with_reference, ref_model_sync_steps=1, ref_model_mixup_alpha=0.25)
    history = run(options, build.batch(samples), updates=2)
    for (_, before), (policy, after) in itertools.pairwise(history):
        expected = [0.75 * old + 0.25 * new for old, new in zip(before, policy, strict=True)]
        assert_close(after, expected)


def test_offloading_changes_no_figure(with_reference, samples, build):
    plain, away = (
        Learner(replace(with_reference, reference_offload=offload)) for offload in (False, True)
    )
    for _ in range(2):
        one, other = (x.update(build.batch(samples)).metrics for x in (plain, away))
        assert {**one, "seconds": 0} == {**other, "seconds": 0}
