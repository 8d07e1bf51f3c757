"""New weights that are loaded beside the old ones, compared with vLLM's reload and a new engine."""

from __future__ import annotations

from typing import Any

import pytest
import ray
import torch
from transformers import (
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from grpo.rollout.errors import WeightsRefused
from grpo.rollout.options import EngineOptions
from grpo.rollout.pool import RolloutPool
from grpo.rollout.transports import make_sender
from grpo.seeding import seed_everything

pytestmark = pytest.mark.long

TOLERANCE = 1e-4
TEXT = tuple(3 + (7 * i) % 120 for i in range(60))
SIZES: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "initializer_range": 0.2,
}
MODELS = {
    "biases, untied head": lambda: Qwen2ForCausalLM(
        Qwen2Config(tie_word_embeddings=False, **SIZES)
    ),
    "norms of heads, tied head": lambda: Qwen3ForCausalLM(
        Qwen3Config(tie_word_embeddings=True, head_dim=32, **SIZES)
    ),
    "stacked in the checkpoint": lambda: Phi3ForCausalLM(Phi3Config(**SIZES)),
    "biases everywhere, tied head": lambda: LlamaForCausalLM(
        LlamaConfig(tie_word_embeddings=True, attention_bias=True, mlp_bias=True, **SIZES)
    ),
}


@pytest.fixture(scope="module")
def cluster():
    ray.init(address="local", num_cpus=2, include_dashboard=False, object_store_memory=200_000_000)
    yield
    ray.shutdown()


@pytest.fixture(scope="module", params=MODELS)
def served(request, cluster, tiny_policy, tmp_path_factory):
    """A policy, and an engine that serves it."""
    with torch.random.fork_rng():
        seed_everything(0)
        policy = MODELS[request.param]().eval()
        draw_again(policy)
    folder = tmp_path_factory.mktemp("policy")
    policy.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_policy(tied=True)).save_pretrained(folder)
    pool = start(folder)
    yield policy, pool
    pool.close()


def start(folder):
    pool = RolloutPool(
        EngineOptions(model=str(folder), max_num_seqs=4, num_threads=2, kv_cache_memory_mb=64)
    )
    pool.start()
    pool.wait_ready()
    return pool


@torch.no_grad()
def draw_again(policy):
    """Biases are zero when they are made, and norms one: no engine could forget to load those."""
    for parameter in policy.parameters():
        parameter.add_(torch.randn(parameter.shape) * (0.1 + 0.5 * parameter.std(correction=0)))


def push(pool, policy):
    sender = make_sender("shared_memory")
    try:
        pool.publish(pool.policy_version + 1, sender.send(list(policy.named_parameters())))
    finally:
        sender.close()


def in_actor(pool, function):
    return ray.get(pool._engines.serving()[0].actor.__ray_call__.remote(function))


def apply(pool, function):
    """Run a function of the model between two steps."""

    def run(actor):
        return actor._loop.call(lambda engine: engine._engine.apply_model(function))

    (answer,) = in_actor(pool, run)
    return answer


def loads_beside(model):
    from grpo.rollout.vllm_beside import can_load_beside

    return can_load_beside(model)


def scores(pool):
    (found,) = pool.score(TEXT, 1)
    return found


@torch.no_grad()
def expected(policy):
    logprobs = policy(torch.tensor([TEXT])).logits[0, :-1].log_softmax(-1)
    return logprobs.gather(-1, torch.tensor(TEXT[1:])[:, None])[:, 0]


def test_a_push_of_the_same_weights_changes_nothing(served):
    policy, pool = served
    assert apply(pool, loads_beside)
    before = scores(pool)
    assert (torch.tensor(before) - expected(policy)).abs().max() < TOLERANCE
    push(pool, policy)
    assert scores(pool) == before


def test_a_push_of_others_is_what_vllms_reload_makes_of_them(served):
    policy, pool = served
    before = scores(pool)
    draw_again(policy)
    push(pool, policy)
    pushed = scores(pool)
    assert (torch.tensor(pushed) - torch.tensor(before)).abs().max() > 100 * TOLERANCE
    assert (torch.tensor(pushed) - expected(policy)).abs().max() < TOLERANCE

    def forbid(actor):
        from grpo.rollout import vllm_transfer

        actor.patch = pytest.MonkeyPatch()
        actor.patch.setattr(vllm_transfer, "can_load_beside", lambda model: False)

    in_actor(pool, forbid)
    push(pool, policy)
    in_actor(pool, lambda actor: actor.patch.undo())
    assert scores(pool) == pushed
    push(pool, policy)
    assert scores(pool) == pushed


def test_what_was_pushed_is_what_a_new_engine_reads(served, tmp_path):
    policy, pool = served
    push(pool, policy)
    policy.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(pool._options.model).save_pretrained(tmp_path)
    new = start(tmp_path)
    assert scores(new) == scores(pool)
    new.close()


def test_a_push_that_lacks_a_part_of_a_stacked_layer_is_refused(served):
    policy, pool = served
    before = scores(pool)
    part = "model.layers.1.self_attn.k_proj.weight"
    names = [name for name, _ in policy.named_parameters()]
    # Where the checkpoint has q, k and v in one tensor, that one is left out.
    lacking = part if part in names else part.replace("k_proj", "qkv_proj")
    tensors = [(name, tensor) for name, tensor in policy.named_parameters() if name != lacking]
    sender = make_sender("shared_memory")
    load = pool._engines.serving()[0].actor.load_weights
    try:
        with pytest.raises(WeightsRefused, match=r"1\.self_attn\.qkv_proj"):
            ray.get(load.remote(99, sender.send(tensors)))
    finally:
        sender.close()
    assert scores(pool) == before
    push(pool, policy)
    assert scores(pool) == before
