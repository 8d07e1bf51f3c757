"""Samples that share a row: the same update, and models that cannot have them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from transformers import MambaConfig, MambaForCausalLM

from grpo.algorithms.presets import resolve_objective
from grpo.learner import packing
from grpo.learner.learner import Learner
from grpo.learner.packing import packs_samples
from grpo.learner.policy import load_policy
from grpo.seeding import seed_everything
from verifiers.errors import UserError


@pytest.mark.parametrize("loss_type", ["dapo", "gspo", "reinforce_plus_plus"])
def test_a_step_is_the_same_packed_and_padded(options, samples, build, loss_type):
    """Several updates, a reference, the KL in the loss and in the reward."""
    options = replace(
        options,
        precision="float64",
        objective=resolve_objective(loss_type),
        beta=0.1,
        num_iterations=2,
        num_mini_batches=2,
    )
    padded, packed = (
        Learner(replace(options, packing=packing)).update(build.batch(samples)).metrics
        for packing in ("off", "on")
    )
    for name in ("loss", "grad_norm", "kl", "entropy", "clip_ratio/region_mean", "num_loss_tokens"):
        assert packed[name] == pytest.approx(padded[name], rel=1e-9), name


def test_a_model_that_mixes_samples_of_a_row_is_refused(options, tmp_path):
    with torch.random.fork_rng():
        seed_everything(3)
        model = MambaForCausalLM(
            MambaConfig(vocab_size=23, hidden_size=16, state_size=4, num_hidden_layers=1)
        )
    model.save_pretrained(tmp_path)
    carried = replace(options, model=str(tmp_path))
    with pytest.raises(UserError, match=r"Mamba.* mixes samples that share a row.*learner.packing"):
        load_policy(replace(carried, packing="on"), trainable=True)
    load_policy(replace(carried, packing="auto"), trainable=True)


@pytest.mark.parametrize(
    ("precision", "use_cpu", "installed", "packed"),
    [
        ("bfloat16", False, True, True),
        ("bfloat16", False, False, False),
        ("bfloat16", True, True, False),
        ("float32", False, True, False),
    ],
)
def test_auto_packs_where_flash_attention_computes(
    options, monkeypatch, precision, use_cpu, installed, packed
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(packing, "is_flash_attn_2_available", lambda: installed)
    options = replace(options, precision=precision, use_cpu=use_cpu)
    assert packs_samples(options) is packed
    assert packs_samples(replace(options, packing="on"))
    assert not packs_samples(replace(options, packing="off"))
