"""A base, a run and a LoRA on the base, evaluated by one command."""

from __future__ import annotations

import json

import pytest


@pytest.mark.long
def test_a_base_a_run_and_its_adapter_score_as_the_run_itself_did(
    train, verigrad, tmp_path, monkeypatch
):
    monkeypatch.setenv("VERIGRAD_CACHE", str(tmp_path / "cache"))
    held_out = "{path: datasets/quickstart_maths/heldout.jsonl, name: maths, limit: 30}"
    training = "{path: datasets/quickstart_maths/train.jsonl, name: maths_train}"
    run = train(
        tmp_path,
        f"data={training}",
        f"evaluation.data=[{held_out}]",
        "steps=2",
        "save_steps=2",
        "prompts_per_step=4",
        "lora_r=8",
        "learning_rate=1e-2",
    )
    assert run.returncode == 0, run.stderr
    targets = (
        "embedded:quickstart",
        run.folder,
        run.folder / "checkpoints" / "checkpoint-2" / "adapter",
    )
    done = verigrad(
        "eval",
        run.folder / "config.yaml",
        *(word for target in targets for word in ("--target", target)),
        f"--output={tmp_path / 'scores'}",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    base, newest, adapter = (result["sets"] for result in json.loads(done.stdout))
    before, after = (
        json.loads((run.folder / f"evaluations/step-{step:06d}.json").read_text())["sets"]
        for step in (0, 2)
    )
    assert base == before
    assert newest == adapter == after
    assert before != after
    folders = {folder.name for folder in (tmp_path / "scores").iterdir()}
    assert folders == {"embedded-quickstart", "checkpoint-2", "adapter"}
