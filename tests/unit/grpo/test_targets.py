"""What `--target` takes: runs, checkpoints, models, hub ids, and LoRA adapters with their base."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from grpo.adapters import merge_adapter
from grpo.checkpoints import write_checkpoint
from grpo.cli import main
from grpo.paths import find_model
from grpo.seeding import seed_everything
from grpo.targets import find_target
from verifiers.errors import UserError


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("VERIGRAD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def make_adapter(base: Path, folder: Path, **changes) -> torch.nn.Module:
    """Write an adapter with random weights, as peft does; the model with it merged in."""
    config = LoraConfig(
        **({"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "up_proj"]} | changes)
    )
    with torch.random.fork_rng():
        seed_everything(1)
        model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), config)
        for name, weight in model.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(weight, std=0.1)
    model.save_pretrained(str(folder))
    return model.merge_and_unload()


@pytest.mark.parametrize(
    "changes", [{}, {"use_rslora": True}, {"rank_pattern": {"up_proj": 2}}], ids=str
)
def test_an_adapter_is_merged_as_peft_merges_it(tiny_policy, tmp_path, changes):
    expected = make_adapter(tiny_policy, tmp_path / "adapter", **changes).state_dict()
    target = find_target(str(tmp_path / "adapter"), warn=pytest.fail)
    assert target.label == "adapter"
    merged = AutoModelForCausalLM.from_pretrained(target.model).state_dict()
    assert merged.keys() == expected.keys()
    for name, weight in expected.items():
        torch.testing.assert_close(merged[name], weight, rtol=0, atol=1e-6, msg=name)
    assert (Path(target.model) / "tokenizer.json").is_file()


def test_an_adapter_is_merged_once_and_anew_when_it_has_changed(tiny_policy, tmp_path):
    make_adapter(tiny_policy, tmp_path / "adapter")
    first = merge_adapter(tmp_path / "adapter")
    written = (first / "model.safetensors").stat().st_mtime_ns
    assert merge_adapter(tmp_path / "adapter") == first
    assert (first / "model.safetensors").stat().st_mtime_ns == written
    make_adapter(tiny_policy, tmp_path / "adapter", lora_alpha=16)
    second = merge_adapter(tmp_path / "adapter")
    assert second != first
    (tmp_path / "adapter" / "chat_template.jinja").write_text("{{ messages }}")
    third = merge_adapter(tmp_path / "adapter")
    assert third != second
    assert (third / "chat_template.jinja").read_text() == "{{ messages }}"


def test_a_base_that_was_replaced_is_merged_anew(tiny_policy, tmp_path):
    base = tmp_path / "base"
    shutil.copytree(tiny_policy, base)
    make_adapter(base, tmp_path / "adapter")
    first = merge_adapter(tmp_path / "adapter")
    (base / "model.safetensors").touch()
    assert merge_adapter(tmp_path / "adapter") != first


@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        ({"use_dora": True}, "no plain LoRA"),
        ({"modules_to_save": ["lm_head"]}, "merge_and_unload"),
        ({"base_model_name_or_path": None}, "names no base_model_name_or_path"),
        ({"base_model_name_or_path": "/nowhere"}, "does not exist"),
    ],
)
def test_an_adapter_that_cannot_be_merged_is_told(tiny_policy, tmp_path, changes, fragment):
    folder = tmp_path / "adapter"
    make_adapter(tiny_policy, folder)
    file = folder / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(UserError, match=fragment):
        merge_adapter(folder)


def test_an_adapter_of_another_base_is_told_and_leaves_nothing(tiny_policy, tmp_path, cache):
    folder = tmp_path / "adapter"
    make_adapter(tiny_policy, folder)
    other = tmp_path / "other"
    shutil.copytree(tiny_policy, other)
    (other / "model.safetensors").unlink()
    file = folder / "adapter_config.json"
    changes = {"base_model_name_or_path": str(other)}
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(UserError, match="was made for another one"):
        merge_adapter(folder)
    assert list((cache / "merged").iterdir()) == []


@pytest.fixture
def run_folder(tiny_policy, tmp_path):
    """A run with two checkpoints."""
    folder = tmp_path / "runs" / "mine"
    for step in (2, 4):
        with write_checkpoint(folder / "checkpoints", step=step, state={"step": step}) as partial:
            shutil.copytree(tiny_policy, partial / "policy")
    (folder / "config.yaml").write_text("model: embedded:quickstart\n")
    return folder


def test_runs_checkpoints_models_and_hub_ids_are_found(run_folder, tiny_policy):
    def find(name):
        target = find_target(str(name), warn=pytest.fail)
        return target.model, target.label, target.home

    newest = run_folder / "checkpoints" / "checkpoint-4" / "policy"
    assert find(run_folder) == (str(newest), "checkpoint-4", run_folder / "evaluations")
    older = run_folder / "checkpoints" / "checkpoint-2"
    assert find(older) == (str(older / "policy"), "checkpoint-2", run_folder / "evaluations")
    assert find(tiny_policy)[:2] == (str(tiny_policy), tiny_policy.name)
    assert find("owner/name")[:2] == ("owner/name", "name")
    assert find("embedded:quickstart")[:2] == ("embedded:quickstart", "embedded-quickstart")


def test_a_run_that_is_given_as_the_model_is_told_where_its_policy_is(tmp_path):
    run = tmp_path / "runs" / "NAME"
    with write_checkpoint(run / "checkpoints", step=50, state={}) as partial:
        (partial / "policy").mkdir()
    with pytest.raises(UserError, match="folder without config") as caught:
        find_model(str(run))
    example = re.search(r"runs/NAME/\S+(?=\.)", str(caught.value))
    assert example is not None
    assert (tmp_path / example.group()).is_dir()


def test_a_run_without_a_checkpoint_is_told(run_folder):
    shutil.rmtree(run_folder / "checkpoints")
    with pytest.raises(UserError, match="has no whole checkpoint"):
        find_target(str(run_folder), warn=pytest.fail)


def test_a_checkpoint_that_was_changed_is_not_evaluated(run_folder):
    checkpoint = run_folder / "checkpoints" / "checkpoint-4"
    (checkpoint / "policy" / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"config\.json"):
        find_target(str(checkpoint), warn=pytest.fail)


def test_the_command_evaluates_every_target_under_one_suite(
    run_folder, tmp_path, monkeypatch, capsys
):
    seen = []

    class Result:
        sets = ()

        def __init__(self, model):
            self.model = model

        def model_dump(self, mode):
            return {"model": self.model, "mode": mode}

    def evaluate(config, _console, output, _completions):
        seen.append((config.model, output))
        return Result(config.model), output / "evaluation.json"

    monkeypatch.setattr("grpo.evaluating.run_evaluation", evaluate)
    targets = ["--target", "embedded:quickstart", "--target", str(run_folder)]
    done = main(
        ["eval", "configs/eval/gsm8k.yaml", *targets, "--output", str(tmp_path / "out"), "--json"]
    )
    assert done == 0
    newest = str(run_folder / "checkpoints" / "checkpoint-4" / "policy")
    assert seen == [
        ("embedded:quickstart", tmp_path / "out" / "embedded-quickstart"),
        (newest, tmp_path / "out" / "checkpoint-4"),
    ]
    shown = json.loads(capsys.readouterr().out)
    assert [entry["model"] for entry in shown] == ["embedded:quickstart", newest]


def test_a_target_that_is_not_there_is_told_before_any_is_evaluated(monkeypatch, capsys):
    monkeypatch.setattr("grpo.evaluating.run_evaluation", pytest.fail)
    targets = ["--target", "embedded:quickstart", "--target", "./nowhere"]
    assert main(["eval", "configs/eval/gsm8k.yaml", *targets]) == 2
    assert "'./nowhere' does not exist" in capsys.readouterr().err
