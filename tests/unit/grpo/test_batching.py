"""Micro-batches: budget, padding, packing, balance and masks."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grpo.learner.batching import Packer, WeightedSample, plan_microbatches, weigh_samples
from grpo.learner.layout import build_tensors
from verifiers.errors import UserError


def weigh(samples):
    return weigh_samples(samples, reduction="token_mean", max_completion_length=8)


def padded(microbatch):
    return len(microbatch) * max(member.sample.num_tokens for member in microbatch)


def test_every_sample_is_learned_once_within_the_budget(samples):
    (share,) = plan_microbatches(weigh(samples), max_tokens=30, world_size=1, packed=False)
    placed = [(m.sample.problem_id, m.sample.member) for micro in share for m in micro]
    assert sorted(placed) == sorted((s.problem_id, s.member) for s in samples)
    assert all(padded(micro) <= 30 for micro in share)


def test_largest_micro_batch_comes_first(samples):
    (share,) = plan_microbatches(weigh(samples), max_tokens=30, world_size=1, packed=False)
    sizes = [padded(micro) for micro in share]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_ranks_get_equally_many_micro_batches(samples, world_size):
    shares = plan_microbatches(weigh(samples), max_tokens=1000, world_size=world_size, packed=False)
    assert [len(share) for share in shares] == [1] * world_size
    rows = [len(share[0]) for share in shares]
    assert sum(rows) == len(samples)
    assert max(rows) <= 2 * min(rows)


def test_rank_without_samples_gets_one_that_carries_no_loss(samples):
    shares = plan_microbatches(weigh(samples[:1]), max_tokens=1000, world_size=3, packed=False)
    assert [len(share) for share in shares] == [1, 1, 1]
    tensors = [build_tensors(share[0], torch.device("cpu"), packed=False) for share in shares]
    assert [len(t.targets) for t in tensors] == [samples[0].num_loss_tokens, 0, 0]


def test_sequence_longer_than_the_budget_is_an_error_that_names_both(samples):
    longest = max(samples, key=lambda s: s.num_tokens)
    with pytest.raises(
        UserError,
        match=f"max_tokens_per_microbatch=3 is smaller than one sequence.*{longest.num_tokens} tok",
    ):
        plan_microbatches(weigh(samples), max_tokens=3, world_size=1, packed=False)


def test_nothing_to_learn_is_an_empty_plan(samples):
    masked = [replace(s, masked=True) for s in samples]
    assert plan_microbatches(weigh(masked), max_tokens=30, world_size=2, packed=False) == [[], []]


def test_tensors_point_at_the_token_before_each_target(samples):
    samples = [samples[0], replace(samples[5], masked=True), samples[9]]
    plan = plan_microbatches(
        [*weigh(samples), *weigh_masked(samples[1])], max_tokens=1000, world_size=1, packed=False
    )
    microbatch = plan[0][0]
    tensors = build_tensors(microbatch, torch.device("cpu"), packed=False)
    flat = tensors.input_ids.flatten()
    width = tensors.input_ids.shape[1]
    assert torch.equal(flat[tensors.positions + 1], tensors.targets)
    for row, member in enumerate(microbatch):
        s = member.sample
        mine = tensors.sequence == row
        assert mine.sum() == s.num_loss_tokens
        assert tensors.input_ids[row, : s.num_tokens].tolist() == [
            *s.prompt_ids,
            *s.completion_ids,
        ]
        if not s.masked:
            assert tensors.targets[mine].tolist() == list(s.completion_ids)
            first = row * width + len(s.prompt_ids) - 1
            assert tensors.positions[mine].tolist() == list(
                range(first, first + len(s.completion_ids))
            )
            assert set(tensors.advantages[mine].tolist()) == {s.advantage}


def weigh_masked(sample):
    """A masked row, as it stands in for a rank that has nothing else."""
    return [WeightedSample(sample=sample, token_weight=0.0)]


def test_padding_token_in_a_completion_is_still_a_loss_token(samples):
    zeros = replace(samples[0], completion_ids=(0, 0, 0), sampler_logprobs=(-1.0,) * 3)
    tensors = build_tensors(tuple(weigh([zeros])), torch.device("cpu"), packed=False)
    assert tensors.targets.tolist() == [0, 0, 0]


def test_packed_samples_lie_end_to_end_each_counted_from_0(samples):
    microbatch = (*weigh(samples[:3]), *weigh_masked(replace(samples[3], masked=True)))
    tensors = build_tensors(microbatch, torch.device("cpu"), packed=True)
    chosen = [member.sample for member in microbatch]
    whole = [token for s in chosen for token in (*s.prompt_ids, *s.completion_ids)]
    assert tensors.input_ids.tolist() == [whole]
    assert tensors.position_ids is not None
    assert tensors.position_ids.tolist() == [[i for s in chosen for i in range(s.num_tokens)]]
    assert tensors.num_sequences == 4
    assert tensors.targets.tolist() == [token for s in chosen[:3] for token in s.completion_ids]
    assert tensors.input_ids[0, tensors.positions + 1].tolist() == tensors.targets.tolist()


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_packed_micro_batches_are_full_and_equal_on_every_rank(samples, world_size):
    shares = plan_microbatches(weigh(samples), max_tokens=20, world_size=world_size, packed=True)
    rounds = list(zip(*shares, strict=True))
    longest = max(s.num_tokens for s in samples)
    for micro_batches in rounds:
        sizes = [sum(m.sample.num_tokens for m in micro) for micro in micro_batches]
        assert max(sizes) <= 20
        assert max(sizes) - min(sizes) <= longest
        if micro_batches is not rounds[-1]:
            assert sum(sizes) + longest * world_size > 20 * world_size


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.integers(2, 12), max_size=40), world_size=st.integers(1, 4), data=st.data()
)
def test_packing_does_not_depend_on_how_samples_come(samples, lengths, world_size, data):
    ids = tuple(range(12))
    drawn = weigh(
        [
            replace(samples[0], member=i, prompt_ids=(1,), completion_ids=ids[: n - 1])
            for i, n in enumerate(lengths)
        ]
    )
    whole = Packer(max_tokens=12, world_size=world_size)
    rounds = [*whole.add(drawn), *whole.finish()]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(drawn)), max_size=5)))
    parts = Packer(max_tokens=12, world_size=world_size)
    found = [
        micro_batches
        for first, last in pairwise([0, *cuts, len(drawn)])
        for micro_batches in parts.add(drawn[first:last])
    ]
    # What is full already is never the last, on which ranks exchange their gradients.
    assert len(found) < len(rounds) or not rounds
    assert [*found, *parts.finish()] == rounds
