"""Pushes of adapters alone: what an engine serves then, beside transformers with peft's layers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import ray
import torch

from grpo.learner.adapters import add_adapters, gather_adapters
from grpo.learner.options import LoraOptions
from grpo.learner.served import gather_weights
from grpo.rollout.errors import RolloutError, WeightsRefused
from grpo.rollout.options import AdapterOptions, EngineOptions
from grpo.rollout.pool import RolloutPool
from grpo.rollout.transports import SharedMemorySender, make_sender
from grpo.rollout.weights import Transport
from grpo.values import RolloutRequest, SamplingOptions
from tests.in_flight import part_at, push_in_flight
from verifiers.errors import UserError

# float32 on both sides: what is left is the order of summation.
TOLERANCE = 1e-4
# Three blocks of the prefix cache.
PROMPT = tuple(3 + (7 * i) % 120 for i in range(96))
SAMPLING = SamplingOptions(max_completion_length=24, stop_token_ids=(1,))
LORA = LoraOptions(r=4, alpha=10.0, use_rslora=True, push="adapter")


@pytest.fixture(scope="module")
def model(tiny_policy):
    return tiny_policy(tied=True)


@pytest.fixture(scope="module")
def cluster():
    ray.init(address="local", num_cpus=2, include_dashboard=False, object_store_memory=200_000_000)
    yield
    ray.shutdown()


def start_pool(model, **options):
    pool = RolloutPool(
        EngineOptions(
            model=str(model), max_num_seqs=64, num_threads=1, kv_cache_memory_mb=64, **options
        ),
        max_restarts=1,
    )
    pool.start()
    return pool


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(True, id="in_process"),
        pytest.param(False, id="in_children", marks=pytest.mark.long),
    ],
)
def pool(request, model, cluster):
    pool = start_pool(model, adapter=AdapterOptions(r=LORA.r), in_process=request.param)
    yield pool
    pool.close()


def load_policy(model, *, lora=LORA, seed=None):
    """The policy as transformers and peft have it; without a seed, its adapters add nothing."""
    from transformers import AutoModelForCausalLM

    policy = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    add_adapters(policy, lora)
    if seed is not None:
        move(policy, seed)
    return policy


@torch.no_grad()
def move(policy, seed):
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in policy.named_parameters():
        if ".lora_" in name:
            parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))


def push(pool, policy, transport: Transport = "object"):
    sender = make_sender(transport)
    try:
        payload = sender.send(list(gather_adapters(policy, torch.float32)))
        (answer,) = pool.publish(pool.policy_version + 1, payload)
        assert answer.checksum == payload.checksum
        return payload
    finally:
        sender.close()


@torch.no_grad()
def compare(policy, rollout, logprobs=None):
    """Mean |engine - transformers| log-probability of a rollout's tokens."""
    ids = torch.tensor([rollout.prompt_ids + rollout.completion_ids])
    logits = policy(ids).logits[0, len(rollout.prompt_ids) - 1 : -1]
    tokens = torch.tensor(rollout.completion_ids)
    expected = logits.log_softmax(-1).gather(-1, tokens[:, None])[:, 0]
    given = torch.tensor(rollout.logprobs if logprobs is None else logprobs)
    return (expected - given).abs().mean().item()


def sample(pool, *, seeds=(1, 2, 3, 4)):
    requests = [RolloutRequest(problem_id="p", prompt_ids=PROMPT, seeds=seeds)]
    return sorted(pool.generate(requests, SAMPLING), key=lambda r: r.member)


def probe(pool, rollout):
    return pool.score(rollout.prompt_ids + rollout.completion_ids, len(rollout.prompt_ids))[0]


def test_an_engine_serves_the_model_until_a_first_push(pool, model):
    untrained = load_policy(model)
    assert max(compare(untrained, rollout) for rollout in sample(pool)) < TOLERANCE


@pytest.mark.parametrize("transport", ["object", "shared_memory", "gloo"])
def test_each_pushed_adapter_takes_the_place_of_the_one_before(pool, model, transport):
    for seed in (1, 2):
        policy = load_policy(model, seed=seed)
        stale = sample(pool, seeds=(1,))[0]
        assert compare(policy, stale, probe(pool, stale)) > 100 * TOLERANCE
        payload = push(pool, policy, transport)
        assert payload.num_bytes < 0.2 * sum(p.numel() * 4 for p in policy.parameters())
        for rollout in sample(pool):
            assert set(rollout.policy_versions) == {pool.policy_version}
            assert compare(policy, rollout) < TOLERANCE
            assert compare(policy, rollout, probe(pool, rollout)) < TOLERANCE


def test_a_push_that_was_skipped_shows_in_the_probe(pool, model):
    policy = load_policy(model, seed=3)
    push(pool, policy)
    rollout = sample(pool, seeds=(1,))[0]
    in_actor = pool._engines.serving()[0].actor.__ray_call__

    def skip(actor):
        actor._loop.engine.load_weights = lambda version, payload, buffer: payload.checksum

    def load_again(actor):
        del actor._loop.engine.load_weights

    move(policy, seed=4)
    ray.get(in_actor.remote(skip))
    push(pool, policy)
    assert compare(policy, rollout, probe(pool, rollout)) > 100 * TOLERANCE
    ray.get(in_actor.remote(load_again))
    push(pool, policy)
    assert compare(policy, rollout, probe(pool, rollout)) < TOLERANCE


def test_a_prefix_cache_that_outlived_a_push_would_be_noticed(pool, model):
    """Negative control: adapters share one number, so that only the reset keeps versions apart."""

    def keep_cache(actor):
        actor._loop.engine._drop_caches = lambda: None

    def drop_cache(actor):
        del actor._loop.engine._drop_caches

    in_actor = pool._engines.serving()[0].actor.__ray_call__
    sample(pool)
    policy = load_policy(model, seed=5)
    ray.get(in_actor.remote(keep_cache))
    try:
        push(pool, policy)
        assert max(compare(policy, r) for r in sample(pool)) > 10 * TOLERANCE
    finally:
        ray.get(in_actor.remote(drop_cache))
    push(pool, policy)
    assert max(compare(policy, r) for r in sample(pool)) < TOLERANCE


def test_after_a_push_in_flight_each_token_is_of_the_policy_it_is_stamped_with(pool, model):
    old = pool.policy_version
    policy = load_policy(model, seed=6)
    rollouts = push_in_flight(pool, PROMPT[:40], lambda: push(pool, policy))
    assert {r.policy_versions[0] for r in rollouts} == {old}
    assert {r.policy_versions[-1] for r in rollouts} == {old + 1}
    for rollout in rollouts:
        head, tail = part_at(rollout, old + 1)
        assert compare(policy, tail) < TOLERANCE
        assert compare(policy, head) > 10 * TOLERANCE


def test_a_damaged_adapter_is_refused_and_the_old_one_goes_on(pool, model):
    policy = load_policy(model, seed=7)
    push(pool, policy)
    sender = make_sender("shared_memory")
    assert isinstance(sender, SharedMemorySender)
    try:
        payload = sender.send(list(gather_adapters(load_policy(model, seed=8), torch.float32)))
        sender._segment.reserve(payload.num_bytes)[payload.plan[3].offset] ^= 1
        with pytest.raises(WeightsRefused, match=payload.checksum):
            pool.publish(pool.policy_version + 1, payload)
    finally:
        sender.close()
    assert max(compare(policy, rollout) for rollout in sample(pool)) < TOLERANCE


@pytest.mark.long
def test_merged_weights_and_adapters_give_the_same_logprobs(pool, model):
    policy = load_policy(model, seed=9)
    push(pool, policy)
    rollout = sample(pool, seeds=(1,))[0]
    merged = start_pool(model)
    try:
        payload = make_sender("object").send(list(gather_weights(policy, "float32")))
        merged.publish(1, payload)
        pairs = zip(probe(pool, rollout), probe(merged, rollout), strict=True)
        assert max(abs(one - other) for one, other in pairs) < TOLERANCE
    finally:
        merged.close()


@pytest.mark.long
def test_adapters_beside_some_layers_only_and_an_engine_that_died_and_got_them_again(
    model, cluster
):
    """`v_proj` is one third of what vLLM computes as one, and only one block has its adapter."""
    patterns = ("layers.0.*.v_proj", "down_proj")
    pool = start_pool(model, adapter=AdapterOptions(r=16, target_modules=patterns))
    try:
        policy = load_policy(model, lora=replace(LORA, r=16, target_modules=patterns), seed=11)
        sender = make_sender("object")
        pool.publish(1, sender.send(list(gather_adapters(policy, torch.float32))))
        assert max(compare(policy, rollout) for rollout in sample(pool)) < TOLERANCE
        ray.kill(pool._engines.serving()[0].actor)
        assert max(compare(policy, rollout) for rollout in sample(pool)) < TOLERANCE
        incomplete = list(gather_adapters(policy, torch.float32))[:-1]
        with pytest.raises(RolloutError, match=r"leaves adapters out.*down_proj"):
            pool.publish(pool.policy_version + 1, make_sender("object").send(incomplete))
    finally:
        pool.close()


@pytest.mark.long
def test_a_model_that_vllm_has_no_adapters_for_is_refused_with_the_cure(tmp_path, cluster):
    from transformers import GPTJConfig, GPTJForCausalLM

    config = GPTJConfig(
        vocab_size=128, n_embd=64, n_layer=1, n_head=2, rotary_dim=16, n_positions=128
    )
    GPTJForCausalLM(config).save_pretrained(tmp_path)
    pool = start_pool(tmp_path, adapter=AdapterOptions(r=4))
    try:
        with pytest.raises(UserError, match="lora_push=merged"):
            pool.wait_ready()
    finally:
        pool.close()
