"""Pushes into an engine that runs in processes of its own, as on GPU, with an untied head."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import cast

import psutil
import pytest
import ray
import torch

from grpo.rollout.errors import WeightsRefused
from grpo.rollout.options import EngineOptions
from grpo.rollout.pool import RolloutPool
from grpo.rollout.transports import SharedMemorySender, make_sender
from grpo.values import RolloutRequest, SamplingOptions

TOLERANCE = 1e-4
SEGMENTS = Path("/dev/shm")
PROMPT = tuple(3 + (7 * i) % 120 for i in range(40))
ENDLESS = SamplingOptions(max_completion_length=300, stop_token_ids=())


@pytest.fixture(scope="module")
def segments_before():
    return set(SEGMENTS.glob("verigrad-weights-*"))


@pytest.fixture(scope="module")
def pool(tiny_policy, segments_before):
    ray.init(address="local", num_cpus=2, include_dashboard=False, object_store_memory=200_000_000)
    options = EngineOptions(
        model=str(tiny_policy(tied=False)),
        max_num_seqs=16,
        num_threads=1,
        kv_cache_memory_mb=64,
        in_process=False,
    )
    pool = RolloutPool(options)
    pool.start()
    yield pool
    pool.close()
    ray.shutdown()


@pytest.fixture(scope="module")
def policy(tiny_policy):
    from transformers import AutoModelForCausalLM

    folder = tiny_policy(tied=False)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@torch.no_grad()
def perturb(policy, seed):
    generator = torch.Generator().manual_seed(seed)
    for parameter in policy.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.add_(0.1 * parameter.std() * noise)


@torch.no_grad()
def compare(policy, prompt_ids, completion_ids, logprobs):
    logits = policy(torch.tensor([prompt_ids + completion_ids])).logits[0, len(prompt_ids) - 1 : -1]
    expected = logits.log_softmax(-1).gather(-1, torch.tensor(completion_ids)[:, None])[:, 0]
    return (expected - torch.tensor(logprobs)).abs().mean().item()


def make_requests(num_groups):
    return [
        RolloutRequest(problem_id=f"p{i}", prompt_ids=PROMPT[i:], seeds=(i, 100 + i))
        for i in range(num_groups)
    ]


def test_shared_memory_holds_the_weights_once_whatever_the_engines_are(
    pool, policy, segments_before
):
    pool.wait_ready()
    sender = make_sender("shared_memory")
    try:
        payload = sender.send(list(policy.named_parameters()))
        pool.publish(pool.policy_version + 1, payload)
        (segment,) = set(SEGMENTS.glob("verigrad-weights-*")) - segments_before
        assert segment.name == payload.handle
    finally:
        sender.close()


@pytest.mark.parametrize("transport", ["object", "shared_memory", "gloo"])
def test_weights_reach_the_children_over_every_transport(pool, policy, transport):
    sender = make_sender(transport)
    try:
        perturb(policy, seed=1)
        stale = next(pool.generate(make_requests(1), ENDLESS))
        assert compare(policy, stale.prompt_ids, stale.completion_ids, stale.logprobs) > 1e-2
        payload = sender.send(list(policy.named_parameters()))
        (push,) = pool.publish(pool.policy_version + 1, payload)
        assert push.checksum == payload.checksum
        for rollout in pool.generate(make_requests(4), ENDLESS):
            ids = (rollout.prompt_ids, rollout.completion_ids)
            assert compare(policy, *ids, rollout.logprobs) < TOLERANCE
            scores = pool.score(rollout.prompt_ids + rollout.completion_ids, len(ids[0]))
            assert compare(policy, *ids, scores[0]) < TOLERANCE
    finally:
        sender.close()


def test_an_engine_that_steps_by_itself_pauses_for_a_push(pool, policy):
    old = pool.policy_version
    stream = pool.generate(make_requests(8), ENDLESS)
    time.sleep(0.3)
    perturb(policy, seed=2)
    pool.publish(old + 1, make_sender("object").send(list(policy.named_parameters())))
    switched = 0
    for rollout in stream:
        assert set(rollout.policy_versions) <= {old, old + 1}
        if rollout.policy_versions[-1] == old + 1:
            new = rollout.policy_versions.index(old + 1)
            switched += new > 0
            prompt_ids = rollout.prompt_ids + rollout.completion_ids[:new]
            assert (
                compare(policy, prompt_ids, rollout.completion_ids[new:], rollout.logprobs[new:])
                < TOLERANCE
            )
    assert switched > 0


def test_a_damaged_segment_is_refused_and_the_next_push_lands(pool, policy):
    version = pool.policy_version
    sender = make_sender("shared_memory")
    try:
        payload = sender.send(list(policy.named_parameters()))
        assert isinstance(sender, SharedMemorySender)
        sender._segment.reserve(payload.num_bytes)[payload.plan[3].offset] ^= 1
        with pytest.raises(WeightsRefused, match=payload.checksum):
            pool.publish(version + 1, payload)
        assert pool.policy_version == version
        pool.publish(version + 1, sender.send(list(policy.named_parameters())))
    finally:
        sender.close()
    assert pool.policy_version == version + 1


def test_closing_ends_the_children_and_removes_their_shared_memory(pool, segments_before):
    actor = pool._engines.serving()[0].actor
    pid = ray.get(actor.__ray_call__.remote(lambda actor: os.getpid()))
    process = psutil.Process(cast("int", pid))
    children = process.children(recursive=True)
    assert children
    pool.close()
    _, alive = psutil.wait_procs([process, *children], timeout=10)
    assert not alive
    assert set(SEGMENTS.glob("verigrad-weights-*")) <= segments_before
