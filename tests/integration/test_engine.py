"""One real engine: what it samples, what it says about it, and what it leaves behind."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import cast

import psutil
import pytest
import ray
import torch

from grpo.rollout.options import EngineOptions
from grpo.rollout.pool import RolloutPool
from grpo.rollout.transports import make_sender
from grpo.values import RolloutRequest, SamplingOptions
from tests.in_flight import part_at, push_in_flight

# float32 on both sides: what is left is the order of summation.
TOLERANCE = 1e-4
# Three blocks of the prefix cache.
PROMPT = tuple(3 + (7 * i) % 120 for i in range(96))
SAMPLING = SamplingOptions(max_completion_length=24, stop_token_ids=(1,))
GREEDY = replace(SAMPLING, temperature=0.0)


@pytest.fixture(scope="module")
def model(tiny_policy):
    return tiny_policy(tied=True)


@pytest.fixture(scope="module")
def leftovers_before():
    return list_leftovers()


@pytest.fixture(scope="module")
def pool(model, leftovers_before):
    ray.init(address="local", num_cpus=2, include_dashboard=False, object_store_memory=200_000_000)
    pool = RolloutPool(
        EngineOptions(model=str(model), max_num_seqs=64, num_threads=1, kv_cache_memory_mb=64)
    )
    pool.start()
    yield pool
    pool.close()
    ray.shutdown()


@pytest.fixture
def policy(model, pool):
    """The policy as transformers has it, served by the engine whatever the test before pushed."""
    policy = load_policy(model)
    push(pool, policy)
    return policy


def load_policy(model):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()


def push(pool, policy):
    payload = make_sender("object").send(list(policy.named_parameters()))
    return pool.publish(pool.policy_version + 1, payload)


@torch.no_grad()
def perturb(policy, seed):
    generator = torch.Generator().manual_seed(seed)
    for parameter in policy.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.add_(0.1 * parameter.std() * noise)


@torch.no_grad()
def compute_logits(policy, rollout):
    ids = torch.tensor([rollout.prompt_ids + rollout.completion_ids])
    return policy(ids).logits[0, len(rollout.prompt_ids) - 1 : -1]


def compare(policy, rollout, logprobs=None, temperature=1.0):
    """Mean |engine - transformers| log-probability of a rollout's tokens."""
    logits = compute_logits(policy, rollout) / temperature
    tokens = torch.tensor(rollout.completion_ids)
    expected = logits.log_softmax(-1).gather(-1, tokens[:, None])[:, 0]
    given = torch.tensor(rollout.logprobs if logprobs is None else logprobs)
    return (expected - given).abs().mean().item()


def sample(pool, sampling, *, seeds=(1, 2, 3, 4), prompt=PROMPT):
    requests = [RolloutRequest(problem_id="p", prompt_ids=prompt, seeds=seeds)]
    return sorted(pool.generate(requests, sampling), key=lambda r: r.member)


def draw(pool, temperature=1.0):
    """What the engine goes on with from what it sampled last."""
    sampling = SamplingOptions(temperature=temperature, max_completion_length=8, stop_token_ids=())
    ((_, rollout),) = pool.finish_draws(pool.begin_draws((5, 6, 7), sampling))
    assert len(rollout.completion_ids) == 8
    assert set(rollout.policy_versions) == {pool.policy_version}
    return rollout


def list_leftovers():
    """Files that vLLM is known to leave behind."""
    folders = (Path(tempfile.gettempdir()), Path("/dev/shm"))
    patterns = ("vllm_dist_*", "verigrad-weights-*")
    return {path for folder in folders for pattern in patterns for path in folder.glob(pattern)}


@pytest.mark.parametrize("temperature", [1.0, 0.7, 1.3])
def test_logprobs_are_of_the_tempered_distribution(pool, policy, temperature):
    for rollout in sample(pool, replace(SAMPLING, temperature=temperature)):
        assert compare(policy, rollout, temperature=temperature) < TOLERANCE
        if temperature != 1.0:
            assert compare(policy, rollout) > 100 * TOLERANCE


def test_logprobs_are_of_the_nucleus_after_renormalising(pool, policy):
    for rollout in sample(pool, replace(SAMPLING, top_p=0.8)):
        probabilities = compute_logits(policy, rollout).softmax(-1)
        ordered, order = probabilities.sort(-1, descending=True)
        outside = ordered.cumsum(-1) - ordered >= 0.8
        kept = probabilities.scatter(-1, order, ordered.masked_fill(outside, 0.0))
        kept = kept / kept.sum(-1, keepdim=True)
        tokens = torch.tensor(rollout.completion_ids)
        expected = kept.gather(-1, tokens[:, None])[:, 0].log()
        assert (expected - torch.tensor(rollout.logprobs)).abs().max() < TOLERANCE


def test_what_is_drawn_after_a_push_goes_on_from_the_middle_of_what_was_sampled_last(pool, policy):
    last = sample(pool, SAMPLING, seeds=(1,))[0]
    half = last.completion_ids[: len(last.completion_ids) // 2]
    for temperature in (1.0, 0.7):
        rollout = draw(pool, temperature)
        assert rollout.prompt_ids == last.prompt_ids + half
        assert compare(policy, rollout, temperature=temperature) < TOLERANCE


def test_greedy_takes_the_likeliest_token(pool, policy):
    rollout = sample(pool, GREEDY, seeds=(1,))[0]
    assert compute_logits(policy, rollout).argmax(-1).tolist() == list(rollout.completion_ids)


def test_a_probe_is_at_temperature_one_whatever_is_sampled(pool, policy):
    for temperature in (0.5, 1.0):
        rollout = sample(pool, replace(SAMPLING, temperature=temperature), seeds=(9,))[0]
        scores = pool.score(rollout.prompt_ids + rollout.completion_ids, len(rollout.prompt_ids))
        assert compare(policy, rollout, scores[0]) < TOLERANCE


def test_a_push_makes_the_engine_the_new_policy_and_without_it_the_probe_shows_the_old_one(
    pool, policy
):
    before = sample(pool, GREEDY, seeds=(1,))[0]
    perturb(policy, seed=1)
    ids, length = before.prompt_ids + before.completion_ids, len(before.prompt_ids)
    assert compare(policy, before, pool.score(ids, length)[0]) > 100 * TOLERANCE
    push(pool, policy)
    assert compare(policy, before, pool.score(ids, length)[0]) < TOLERANCE
    after = sample(pool, GREEDY, seeds=(1,))[0]
    assert compute_logits(policy, after).argmax(-1).tolist() == list(after.completion_ids)
    assert max(compare(policy, r) for r in sample(pool, SAMPLING)) < TOLERANCE


@pytest.mark.parametrize("beside", [True, False])
def test_the_head_that_vllm_leaves_behind_would_be_noticed(pool, policy, beside):
    """Negative control: without our cure, a tied head goes on computing with old weights."""

    def change(actor):
        from grpo.rollout import vllm_beside, vllm_transfer

        actor.patch = pytest.MonkeyPatch()
        actor.patch.setattr(vllm_beside, "share_packed_weight", lambda owner, layer: None)
        actor.patch.setattr(vllm_transfer, "find_layers_with_shared_weight", lambda model: [])
        if not beside:
            actor.patch.setattr(vllm_transfer, "can_load_beside", lambda model: False)

    in_actor = pool._engines.serving()[0].actor.__ray_call__
    perturb(policy, seed=2)
    ray.get(in_actor.remote(change))
    try:
        push(pool, policy)
        assert max(compare(policy, r) for r in sample(pool, SAMPLING)) > 10 * TOLERANCE
    finally:
        ray.get(in_actor.remote(lambda actor: actor.patch.undo()))
    push(pool, policy)
    assert max(compare(policy, r) for r in sample(pool, SAMPLING)) < TOLERANCE


def test_a_prefix_cache_that_outlived_a_push_would_be_noticed(pool, policy):
    """Negative control: the old policy's cached prompt shows in the new policy's log-probs.

    It also shows that there is a prefix cache at all.
    """

    def keep_cache(actor):
        actor._loop.engine._drop_caches = lambda: None

    def drop_cache(actor):
        del actor._loop.engine._drop_caches

    in_actor = pool._engines.serving()[0].actor.__ray_call__
    sample(pool, SAMPLING)
    perturb(policy, seed=3)
    ray.get(in_actor.remote(keep_cache))
    try:
        push(pool, policy)
        assert compare(policy, draw(pool)) > 10 * TOLERANCE
        assert max(compare(policy, r) for r in sample(pool, SAMPLING)) > 10 * TOLERANCE
    finally:
        ray.get(in_actor.remote(drop_cache))
    push(pool, policy)
    assert compare(policy, draw(pool)) < TOLERANCE
    assert max(compare(policy, r) for r in sample(pool, SAMPLING)) < TOLERANCE


def test_after_a_push_in_flight_each_token_is_of_the_policy_it_is_stamped_with(pool, policy):
    old_version = pool.policy_version

    def push_another():
        perturb(policy, seed=4)
        push(pool, policy)

    rollouts = push_in_flight(pool, PROMPT[:40], push_another)
    assert {r.policy_versions[0] for r in rollouts} == {old_version}
    assert {r.policy_versions[-1] for r in rollouts} == {old_version + 1}
    for rollout in rollouts:
        head, tail = part_at(rollout, old_version + 1)
        assert compare(policy, tail) < TOLERANCE
        assert compare(policy, head) > 10 * TOLERANCE


def test_closing_leaves_no_process_and_no_file(pool, leftovers_before):
    """The last test of this file: it closes what the others use."""
    pid = ray.get(pool._engines.serving()[0].actor.__ray_call__.remote(lambda actor: os.getpid()))
    process = psutil.Process(cast("int", pid))
    children = process.children(recursive=True)
    pool.close()
    _, alive = psutil.wait_procs([process, *children], timeout=10)
    assert not alive
    assert list_leftovers() <= leftovers_before
