"""A run's length in passes over the data, and its warm-up as a share."""

from __future__ import annotations

import json

import pytest

from grpo.cli import main
from grpo.config import load_config
from grpo.config.schema import RunConfig
from grpo.duration import resolve_duration
from verifiers.errors import UserError


def resolve(num_problems=100, **options):
    return resolve_duration(RunConfig(model="m", **options), num_problems=num_problems)


@pytest.mark.parametrize(
    ("options", "steps", "warmup_steps"),
    [
        ({}, 100, 0),
        ({"steps": 7, "warmup_steps": 2}, 7, 2),
        ({"num_train_epochs": 1, "prompts_per_step": 25}, 4, 0),
        ({"num_train_epochs": 1.5, "prompts_per_step": 16}, 10, 0),
        ({"num_train_epochs": 0.001}, 1, 0),
        ({"steps": 50, "warmup_ratio": 0.1}, 50, 5),
        ({"steps": 50, "warmup_ratio": 0.1, "num_iterations": 2, "num_mini_batches": 3}, 50, 30),
        ({"num_train_epochs": 2, "prompts_per_step": 10, "warmup_ratio": 0.25}, 20, 5),
    ],
)
def test_shares_become_steps_and_updates(options, steps, warmup_steps):
    config = resolve(**options)
    assert (config.steps, config.warmup_steps) == (steps, warmup_steps)
    assert (config.num_train_epochs, config.warmup_ratio) == (None, None)
    again = RunConfig.model_validate(config.model_dump(mode="json"))
    assert resolve_duration(again, num_problems=1) == again


@pytest.mark.parametrize(
    "options", ["steps: 9\nnum_train_epochs: 1", "warmup_steps: 0\nwarmup_ratio: 0.1"]
)
def test_both_forms_are_refused(tmp_path, options):
    file = tmp_path / "run.yaml"
    file.write_text(f"model: m\n{options}")
    with pytest.raises(UserError, match="say the same in two ways; leave one of them out"):
        load_config(str(file))


@pytest.mark.parametrize(
    ("override", "length"),
    [("num_train_epochs=2", (20, 5)), ("steps=7", (7, 2)), ("warmup_steps=1", (9, 1))],
)
def test_an_override_takes_the_place_of_the_files_other_form(tmp_path, override, length):
    file = tmp_path / "run.yaml"
    form = "num_train_epochs: 1" if override.startswith("steps") else "steps: 9"
    file.write_text(f"model: m\nprompts_per_step: 10\n{form}\nwarmup_ratio: 0.25")
    resolved = resolve_duration(load_config(str(file), [override])[0], num_problems=100)
    assert (resolved.steps, resolved.warmup_steps) == length


def test_both_forms_among_the_overrides_are_refused(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("model: m")
    with pytest.raises(UserError, match="say the same in two ways"):
        load_config(str(file), ["steps=3", "num_train_epochs=1"])


def test_the_plan_says_how_many_steps_they_are(tmp_path, capsys):
    rows = [{"prompt": f"{number}+1=", "answer": "1"} for number in range(10)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "run.yaml").write_text(
        f"model: embedded:quickstart\ndata: {{path: {tmp_path}/rows.jsonl, verifier: math}}\n"
        "max_prompt_length: 32\nmax_completion_length: 32\nnum_train_epochs: 2\n"
        "prompts_per_step: 4\nmax_tokens_per_microbatch: 512"
    )
    assert main(["train", str(tmp_path / "run.yaml"), "--dry-run"]) == 0
    assert "run        5 steps = 20 prompts = 2.00 passes" in capsys.readouterr().out
