"""Checkpoints: all or nothing, damage found, training resumed exactly."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from peft import PeftModel
from transformers import (
    AutoModelForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from grpo.checkpoints import (
    DamagedCheckpoint,
    latest_checkpoint,
    list_checkpoints,
    prune_checkpoints,
    read_state,
    verify_checkpoint,
    write_checkpoint,
)
from grpo.learner.learner import Learner
from grpo.learner.options import LoraOptions
from verifiers.errors import UserError


def write(run_dir, step, text="weights", **options):
    with write_checkpoint(run_dir, step=step, state={"step": step}, **options) as folder:
        (folder / "policy").mkdir()
        (folder / "policy" / "model").write_text(text)
    return run_dir / f"checkpoint-{step}"


def test_whole_checkpoint_verifies_and_gives_its_state_back(tmp_path):
    folder = write(tmp_path / "new", 3)
    verify_checkpoint(folder)
    assert read_state(folder) == {"step": 3}
    assert latest_checkpoint(tmp_path / "new", pytest.fail) == folder
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["checkpoint-3"]


def test_failed_write_leaves_nothing(tmp_path):
    def fail():
        with write_checkpoint(tmp_path, step=1, state={}) as folder:
            (folder / "half").write_text("x")
            raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_killed_write_is_not_taken_for_a_checkpoint(tmp_path):
    whole = write(tmp_path, 1)
    partial = tmp_path / "partial-2-99"
    partial.mkdir()
    (partial / "state.json").write_text("{}")
    assert list_checkpoints(tmp_path) == [whole]


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip(path):
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])


@pytest.mark.parametrize(
    ("damage", "name", "message"),
    [
        (truncate, "policy/model", "has 6 bytes, but 7 were written"),
        (flip, "policy/model", "another content"),
        (lambda path: path.unlink(), "policy/model", "is missing"),
        (lambda path: path.unlink(), "manifest.json", "never finished"),
        (truncate, "manifest.json", "cannot be read"),
        (truncate, "state.json", "bytes, but"),
    ],
)
def test_damage_is_found_and_the_one_before_is_used(tmp_path, damage, name, message):
    before, newest = write(tmp_path, 9), write(tmp_path, 10)
    damage(newest / name)
    with pytest.raises(DamagedCheckpoint, match=message):
        verify_checkpoint(newest)
    warnings = []
    assert latest_checkpoint(tmp_path, warnings.append) == before
    assert len(warnings) == 1
    assert "checkpoint-10" in warnings[0]


def test_no_checkpoint_at_all(tmp_path):
    assert latest_checkpoint(tmp_path / "absent", pytest.fail) is None


def test_keep_last_removes_the_oldest(tmp_path):
    for step in (8, 9, 10, 11):
        write(tmp_path, step, keep_last=2)
    assert [path.name for path in list_checkpoints(tmp_path)] == ["checkpoint-10", "checkpoint-11"]
    with pytest.raises(UserError, match="keep_last=0"):
        prune_checkpoints(tmp_path, 0)


def test_same_step_again_replaces_the_old_one(tmp_path):
    write(tmp_path, 4, "old")
    folder = write(tmp_path, 4, "new")
    verify_checkpoint(folder)
    assert (folder / "policy" / "model").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-4"]


def save(learner, run_dir, step):
    with write_checkpoint(run_dir, step=step, state={"step": step}) as folder:
        learner.state.begin_save(folder)
        learner.state.finish_save()
    return run_dir / f"checkpoint-{step}"


def test_resumed_training_is_the_uninterrupted_one_bit_for_bit(options, build, tmp_path):
    options = replace(options, beta=0.05, warmup_steps=2, lr_scheduler="cosine", weight_decay=0.01)
    options = replace(options, kl_target=1e-4, entropy_target=9.0, num_iterations=2)
    batches = [build.batch(build.samples(seed=step), step) for step in range(1, 7)]
    straight = Learner(options)
    wanted = [straight.update(batch).metrics for batch in batches]

    first = Learner(options)
    for batch in batches[:3]:
        first.update(batch)
    folder = save(first, tmp_path, 3)
    del first
    second = Learner(options)
    second.state.load(folder)
    got = [second.update(batch).metrics for batch in batches[3:]]

    for one, other in zip(wanted[3:], got, strict=True):
        assert {k: v for k, v in one.items() if k != "seconds"} == {
            k: v for k, v in other.items() if k != "seconds"
        }
    for (name, one), (_, other) in zip(
        straight.named_weights(), second.named_weights(), strict=True
    ):
        assert torch.equal(one, other), name


def test_random_state_is_restored(options, tmp_path):
    learner = Learner(options)
    folder = save(learner, tmp_path, 1)
    wanted = torch.rand(3)
    learner.state.load(folder)
    assert torch.equal(torch.rand(3), wanted)


def test_optimizer_settings_are_the_options_not_the_checkpoints(options, samples, build, tmp_path):
    learner = Learner(options)
    learner.update(build.batch(samples))
    folder = save(learner, tmp_path, 1)
    other = Learner(replace(options, weight_decay=0.3, adam_betas=(0.8, 0.9)))
    other.state.load(folder)
    assert other.optimizer.param_groups[0]["weight_decay"] == 0.3
    assert other.optimizer.param_groups[0]["betas"] == (0.8, 0.9)


def test_policy_folder_is_a_model_of_its_own(options, samples, build, tmp_path, tiny_policy):
    learner = Learner(options)
    learner.update(build.batch(samples))
    policy = save(learner, tmp_path, 1) / "policy"
    model = AutoModelForCausalLM.from_pretrained(policy)
    own = model.state_dict()
    for name, tensor in learner.named_weights():
        assert torch.equal(own[name], tensor), name
    assert PreTrainedTokenizerFast.from_pretrained(policy)("w3")["input_ids"] == [3]
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (policy / name).read_bytes() == (tiny_policy / name).read_bytes()
    config = json.loads((policy / "config.json").read_text())
    original = json.loads((tiny_policy / "config.json").read_text())
    assert config == original


def test_checkpoint_of_another_model_is_refused(options, tmp_path):
    folder = save(Learner(options), tmp_path / "run", 1)
    config = Qwen2Config.from_pretrained(options.model)
    config.num_hidden_layers, config.layer_types = 3, None
    Qwen2ForCausalLM(Qwen2Config(**config.to_diff_dict())).save_pretrained(tmp_path / "other")
    other = Learner(replace(options, model=str(tmp_path / "other")))
    with pytest.raises(UserError, match="is of another model than the configuration's"):
        other.state.load(folder)


def test_adapters_and_weights_are_not_taken_for_each_other(options, samples, build, tmp_path):
    adapted = replace(options, lora=LoraOptions(r=4))
    full = save(Learner(options), tmp_path / "full", 1)
    lora = save(Learner(adapted), tmp_path / "lora", 1)
    with pytest.raises(UserError, match="has no adapters, but the configuration trains some"):
        Learner(adapted).state.load(full)
    with pytest.raises(UserError, match="has some, but the configuration trains no adapters"):
        Learner(options).state.load(lora)
    fewer = replace(options, lora=LoraOptions(r=4, target_modules=("q_proj",)))
    with pytest.raises(UserError, match="of another model"):
        Learner(fewer).state.load(lora)
    frozen = Learner(replace(options, frozen_layers=("mlp",)))
    with pytest.raises(UserError, match=r"trained other weights.*mlp.*only in the checkpoint"):
        frozen.state.load(full)


def test_peft_reads_the_adapter_and_it_is_the_served_policy(options, samples, build, tmp_path):
    learner = Learner(replace(options, lora=LoraOptions(r=4), learning_rate=0.02))
    learner.update(build.batch(samples))
    folder = save(learner, tmp_path, 1)
    base = AutoModelForCausalLM.from_pretrained(options.model)
    model = PeftModel.from_pretrained(base, folder / "adapter").merge_and_unload()
    merged = AutoModelForCausalLM.from_pretrained(folder / "policy").state_dict()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(merged[name], tensor, rtol=0, atol=1e-6, msg=name)
