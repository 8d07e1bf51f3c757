"""LoRA and frozen layers: what trains, what is served, what the reference is."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM

from grpo.learner.adapted_layers import choose_layers, read_layers
from grpo.learner.learner import Learner
from grpo.learner.options import LoraOptions
from grpo.learner.selecting import select_names
from grpo.learner.served import gather_weights
from verifiers.errors import UserError

LORA = LoraOptions(r=4, alpha=8.0)


def load(options):
    return AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)


def train(options, batch, updates=2):
    learner = Learner(options)
    for _ in range(updates):
        assert learner.update(batch).skipped is None
    return learner


@pytest.mark.parametrize("rslora", [False, True])
def test_served_weights_are_the_base_plus_the_scaled_adapter(options, samples, build, rslora):
    learner = train(replace(options, lora=replace(LORA, use_rslora=rslora)), build.batch(samples))
    scale = 8.0 / (math.sqrt(4) if rslora else 4)
    base = load(options).state_dict()
    served = dict(learner.named_weights())
    assert set(served) == set(base) - {"lm_head.weight"}
    parts = learner.policy.model.state_dict()
    moved = 0
    for name, weight in served.items():
        stem = name.removesuffix(".weight")
        expected = base[name]
        if f"{stem}.lora_A.default.weight" in parts:
            high, low = (parts[f"{stem}.lora_{side}.default.weight"] for side in "BA")
            expected = expected + scale * high @ low
            moved += not torch.equal(weight, base[name])
        torch.testing.assert_close(weight, expected, rtol=0, atol=1e-7)
    assert moved == 14  # seven linear layers in each of two blocks


def test_a_served_policy_scores_as_the_trained_one_does(options, samples, build):
    learner = train(replace(options, lora=LORA, learning_rate=0.02), build.batch(samples))
    engine = load(options)
    before = engine(torch.tensor([[1, 2, 3]])).logits.log_softmax(-1)[0, 1, 3].item()
    engine.load_state_dict(dict(learner.named_weights()), strict=False)
    engine.tie_weights()
    after = engine(torch.tensor([[1, 2, 3]])).logits.log_softmax(-1)[0, 1, 3].item()
    assert learner.score([1, 2], [3])[0] == pytest.approx(after, abs=1e-5)
    assert abs(after - before) > 1e-3


@pytest.mark.parametrize("rslora", [False, True])
def test_adapters_alone_are_what_is_added_to_the_base(options, samples, build, rslora):
    lora = replace(LORA, use_rslora=rslora, push="adapter")
    learner = train(replace(options, lora=lora), build.batch(samples))
    alone = dict(learner.named_weights())
    assert {name: tensor.shape for name, tensor in learner.lay_out_weights()} == {
        name: tensor.shape for name, tensor in alone.items()
    }
    merged = dict(gather_weights(learner.policy.model, "float32"))
    base = load(options).state_dict()
    stems = {name.removesuffix(".lora_A.weight") for name in alone if "lora_A" in name}
    assert len(alone) == 2 * len(stems) == 28  # seven linear layers in each of two blocks
    for stem in stems:
        name = stem.removeprefix("base_model.model.") + ".weight"
        change = alone[f"{stem}.lora_B.weight"] @ alone[f"{stem}.lora_A.weight"]
        torch.testing.assert_close(base[name] + change, merged[name], rtol=0, atol=1e-7)
        assert change.abs().max() > 1e-5


def test_a_learner_in_bfloat16_serves_adapters_in_bfloat16(options):
    lora = replace(LORA, push="adapter")
    learner = Learner(replace(options, precision="bfloat16", lora=lora))
    assert {tensor.dtype for _, tensor in learner.named_weights()} == {torch.bfloat16}
    assert {tensor.dtype for _, tensor in learner.lay_out_weights()} == {torch.bfloat16}


def test_adapted_layers_are_known_without_loading_the_model(options):
    for patterns in ((), ("layers.1.*.q_proj", "down_proj")):
        assert read_layers(options.model, patterns) == choose_layers(load(options), patterns)
    with pytest.raises(UserError, match="'lm_head' matches nothing"):
        read_layers(options.model, ("lm_head",))


def test_the_reference_is_the_base_and_takes_no_memory(options, samples, build):
    learner = Learner(replace(options, lora=LORA, beta=0.1, learning_rate=0.02))
    first = learner.update(build.batch(samples)).metrics
    assert first["kl"] == 0.0
    learner.update(build.batch(samples))
    assert learner.reference is not None
    ids = torch.tensor([[1, 2, 3]])
    got, _ = learner.reference(ids, torch.tensor([1]), torch.tensor([3]))
    expected = load(options)(ids).logits.log_softmax(-1)[0, 1, 3]
    assert got.item() == pytest.approx(expected.item(), abs=1e-6)
    assert learner.update(build.batch(samples)).metrics["kl"] > 0


def test_only_chosen_modules_have_adapters(options):
    learner = Learner(replace(options, lora=replace(LORA, target_modules=("layers.1.*.q_proj",))))
    trained = [name for name, p in learner.policy.named_parameters() if p.requires_grad]
    assert trained == [
        f"model.model.layers.1.self_attn.q_proj.lora_{side}.default.weight" for side in "AB"
    ]


def test_a_target_that_matches_nothing_is_told_with_what_there_is(options):
    wrong = replace(options, lora=replace(LORA, target_modules=("q_proj", "query_key_value")))
    with pytest.raises(UserError, match=r"'query_key_value' matches nothing.*layers\.\*"):
        Learner(wrong)


def test_frozen_layers_stay_and_the_rest_moves(options, samples, build):
    frozen = replace(options, frozen_layers=("embed_tokens", "layers.0"))
    learner = train(frozen, build.batch(samples))
    base = load(options).state_dict()
    stayed = {name for name, weight in learner.named_weights() if torch.equal(weight, base[name])}
    assert stayed == {n for n in base if "embed" in n or "layers.0." in n}
    # What does not train has no optimizer state either.
    assert len(learner.optimizer.state_dict()["state"]) == 13


def test_freezing_everything_is_refused(options):
    with pytest.raises(UserError, match="matches every weight"):
        Learner(replace(options, frozen_layers=("*",)))


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("q_proj", ["m.layers.1.q_proj", "m.layers.10.q_proj"]),
        ("layers.1", ["m.layers.1.q_proj"]),
        ("layers.1?", ["m.layers.10.q_proj"]),
        ("m.layers.1.q_proj", ["m.layers.1.q_proj"]),
        ("m.*", ["m.layers.1.q_proj", "m.layers.10.q_proj", "m.norm"]),
    ],
)
def test_patterns_match_whole_parts(pattern, expected):
    names = ["m.layers.1.q_proj", "m.layers.10.q_proj", "m.norm"]
    assert select_names(names, [pattern], option="x") == expected
    with pytest.raises(UserError, match="x: 'proj' matches nothing"):
        select_names(names, ["proj"], option="x")
