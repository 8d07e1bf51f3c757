"""Options of the learner that contradict each other, the device or the model."""

from __future__ import annotations

import re

import pytest
import torch

from grpo.config.schema import RunConfig
from grpo.learner.packing import packs_samples
from grpo.rollout.options import Device
from grpo.training_options import (
    check_training_options,
    describe_packing,
    describe_reference,
    describe_trained,
)
from grpo.wiring.learner import make_learner_options
from verifiers.errors import UserError

WEIGHTS = [
    "model.embed_tokens.weight",
    "model.layers.0.q_proj.weight",
    "model.layers.0.q_proj.bias",
]


def make(**options):
    return RunConfig.model_validate({"model": "m", "data": {"path": "d.jsonl"}} | options)


def check(device: Device | None = "cpu", weights=WEIGHTS, **options):
    check_training_options(make(**options), device=device, weights=weights)


@pytest.mark.parametrize(
    ("options", "first", "second"),
    [
        ({"lora_r": 8, "learner": {"frozen_layers": ["embed"]}}, "lora_r=8", "frozen_layers"),
        ({"lora_target_modules": ["q_proj"]}, "lora_target_modules", "lora_r=0"),
        ({"ref_model_sync_steps": 5}, "ref_model_sync_steps=5", "beta=0"),
        (
            {"ref_model_sync_steps": 5, "beta": 0.1, "lora_r": 8},
            "ref_model_sync_steps=5",
            "lora_r=8",
        ),
        ({"lora_push": "adapter"}, "lora_push=adapter", "lora_r=0"),
        ({"lora_push": "adapter", "lora_r": 513}, "lora_r=513", "lora_push=merged"),
        (
            {"lora_push": "adapter", "lora_r": 8, "rollout": {"weight_transport": "nccl"}},
            "rollout.weight_transport=nccl",
            "lora_push=adapter",
        ),
        ({"optim": "adamw_8bit"}, "optim=adamw_8bit", "CPU"),
        ({"rollout": {"dtype": "float16"}}, "rollout.dtype=float16", "learner.dtype"),
        ({"beta": 0.1, "learner": {"reference_offload": True}}, "reference_offload=true", "CPU"),
        ({"lora_r": 8, "lora_target_modules": ["c_attn"]}, "'c_attn'", "layers.*.q_proj"),
        ({"learner": {"frozen_layers": ["head"]}}, "'head'", "model.embed_tokens.weight"),
    ],
)
def test_both_sides_of_a_disagreement_are_named(options, first, second):
    with pytest.raises(UserError) as raised:
        check(**options)
    assert first in str(raised.value)
    assert second in str(raised.value)


@pytest.mark.parametrize(
    ("packing", "device", "dtype", "installed", "said"),
    [
        ("auto", "cuda", "bfloat16", True, "packed: flash-attention is installed"),
        ("auto", "cuda", "bfloat16", False, r"padded: .* not installed .*verigrad\[flash-attn\]"),
        ("auto", "cuda", "float32", True, "padded: .*float32"),
        ("auto", "cpu", "float32", True, "padded: .*needs a GPU"),
        ("on", "cpu", "float32", False, "packed: learner.packing=on"),
        ("off", "cuda", "bfloat16", True, "padded: learner.packing=off"),
    ],
)
def test_the_plan_says_whether_rows_are_packed_and_why(
    monkeypatch, packing, device, dtype, installed, said
):
    monkeypatch.setattr(
        "grpo.training_options.find_spec", lambda name: object() if installed else None
    )
    config = make(learner={"packing": packing}, rollout={"dtype": dtype})
    described = describe_packing(config, device)
    assert re.match(said, described), described
    # As the learner decides, on such a machine.
    monkeypatch.setattr(torch.cuda, "is_available", lambda: device == "cuda")
    monkeypatch.setattr("grpo.learner.packing.is_flash_attn_2_available", lambda: installed)
    options = make_learner_options(config, "m", device)
    assert packs_samples(options) == described.startswith("packed")


def test_what_depends_on_a_device_that_is_not_known_yet_is_left_to_the_start(monkeypatch):
    monkeypatch.setattr("grpo.training_options.find_spec", lambda name: object())
    offload = {"beta": 0.1, "learner": {"reference_offload": True}}
    for options in ({"optim": "adamw_8bit"}, offload):
        check(device=None, **options)
        check(device="cuda", **options)
        with pytest.raises(UserError, match="CPU"):
            check(device="cpu", **options)
    assert describe_packing(make(), None).startswith("packed where flash-attention is installed")


def test_8_bits_and_shards_exclude_each_other():
    with pytest.raises(UserError, match="sharding=fsdp2"):
        check(device="cuda", optim="adamw_8bit", learner={"sharding": "fsdp2"})


@pytest.mark.parametrize(("options", "lacks"), [({}, "beta=0"), ({"lora_r": 8}, "lora_r=8")])
def test_a_reference_without_memory_of_its_own_is_not_offloaded(options, lacks):
    offload = {"learner": {"reference_offload": True}}
    with pytest.raises(UserError, match=rf"reference_offload=true would free nothing.*{lacks}"):
        check(device="cuda", **offload, **{"beta": 0.1 if options else 0.0, **options})
    check(device="cuda", beta=0.1, **offload)


@pytest.mark.parametrize(
    ("device", "engines", "learner", "computed", "served", "agreed"),
    [
        ("cpu", "auto", "auto", "float32", "float32", "float32"),
        ("cuda", "auto", "auto", "bfloat16", "bfloat16", "bfloat16"),
        ("cpu", "bfloat16", "auto", "bfloat16", "bfloat16", "bfloat16"),
        ("cuda", "bfloat16", "float32", "float32", "bfloat16", "bfloat16"),
        ("cpu", "float32", "bfloat16", "bfloat16", "float32", "bfloat16"),
    ],
)
def test_engines_and_learner_have_a_type_each(device, engines, learner, computed, served, agreed):
    config = make(rollout={"dtype": engines}, learner={"dtype": learner})
    options = make_learner_options(config, "m", device)
    assert options.use_cpu == (device == "cpu")
    assert options.precision == computed
    assert options.served_precision == served
    assert options.agreed_precision == agreed


def test_agreeing_options_pass():
    check(lora_r=512, lora_push="adapter", rollout={"weight_transport": "gloo"})
    check(lora_r=513)
    check(lora_r=8, lora_target_modules=["q_proj"], beta=0.1)
    check(learner={"frozen_layers": ["layers.0", "embed_tokens"]})
    check(learner={"frozen_layers": ["anything"]}, weights=None)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "none (beta=0)"),
        ({"beta": 0.1}, "a frozen copy of m"),
        ({"beta": 0.1, "lora_r": 8}, "m itself, under the adapters"),
        (
            {"beta": 0.1, "ref_model_sync_steps": 1, "ref_model_mixup_alpha": 0.25},
            "a copy of m that becomes 0.75 of itself + 0.25 of the policy every 1 updates",
        ),
        (
            {"beta": 0.1, "ref_model_sync_steps": 9},
            "a copy of m that becomes the policy every 9 updates",
        ),
    ],
)
def test_the_log_says_which_weights_the_reference_is(options, expected):
    assert describe_reference(make(**options)) == expected


def test_the_log_says_what_trains():
    assert describe_trained(make()) == "all weights"
    assert describe_trained(make(learner={"frozen_layers": ["mlp"]})) == "all weights but mlp"
    assert "rsLoRA of rank 4" in describe_trained(make(lora_r=4, use_rslora=True))
    alone = describe_trained(make(lora_r=4, lora_push="adapter"))
    assert alone.endswith("but the output, pushed without the weights under it")
