"""Whole quickstart runs that are killed, resumed, replayed, and spread over ranks; minutes each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from grpo.ahead import read_gathered
from grpo.checkpoints import latest_checkpoint, read_state
from grpo.replay import replay_step

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

STEPS = 8
# Half as many prompts as in the quickstart, and hardly an evaluation: the updates are what counts.
COMMON = (
    f"steps={STEPS}",
    "save_steps=2",
    "keep_last=9",
    "prompts_per_step=8",
    "beta=0.04",
    "eval_before_train=false",
    "evaluation.num_samples=1",
    "evaluation.k=[1]",
    "evaluation.data.0.limit=8",
    "evaluation.data.1.limit=8",
)
ADAPTIVE = ("kl_target=0.001", "kl_horizon=100")
VARIANTS = {
    "plain": (),
    "lora-and-adaptive-kl": ("lora_r=8", "learning_rate=1e-3", *ADAPTIVE),
    "adapters-alone": ("lora_r=8", "lora_push=adapter", "learning_rate=1e-3"),
    "moving-reference": ("ref_model_sync_steps=2", "ref_model_mixup_alpha=0.5", *ADAPTIVE),
}
# What says how long things took; nothing else of a metrics line may differ.
TIMING = ("time/", "second", "waits/", "queues/", "utilisation", "hidden_fraction")


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_killed_run_goes_on_as_if_it_had_not_been(train, tmp_path, variant):
    options = (*COMMON, *VARIANTS[variant])
    straight = train(tmp_path / "straight", *options)
    assert straight.returncode == 0, straight.stderr
    killed = kill_at(tmp_path / "killed", STEPS // 2 + 1, *options)
    resumed = train(killed.parent, *options, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert_same_run(resumed, straight, first=1)
    if variant == "plain":
        forked = train(
            tmp_path / "forked", *options, "--fork", killed / f"checkpoints/checkpoint-{STEPS // 2}"
        )
        assert forked.returncode == 0, forked.stderr
        assert_same_run(forked, straight, first=STEPS // 2 + 1)


def assert_same_run(run, straight, *, first):
    """From a step on: the same metrics and rollouts, and the same weights at the end."""
    expected_rows = [row for row in straight.metrics if row["step"] >= first]
    for row, expected in zip(run.metrics, expected_rows, strict=True):
        names = {n for n in expected if n != "time" and not any(part in n for part in TIMING)}
        assert len(names) > 40
        assert {n: row.get(n) for n in names} == {n: expected[n] for n in names}
    for step in range(first, STEPS + 1):
        ours, theirs = run.rollouts(step), straight.rollouts(step)
        for name in ("completion_ids", "logprobs", "reward", "policy_versions"):
            assert [row[name] for row in ours] == [row[name] for row in theirs]
    weights = f"checkpoints/checkpoint-{STEPS}/policy/model.safetensors"
    one, other = load_file(run.folder / weights), load_file(straight.folder / weights)
    assert all(bool((one[name] == tensor).all()) for name, tensor in other.items())


def kill_at(output, step, *options):
    """Start a run, and kill it without warning once a step is logged; its folder.

    That is while the next one is under way, or the checkpoint of the last is being written.
    """
    folder = output / "quickstart"
    process = subprocess.Popen(
        [sys.executable, "-m", "grpo", "train", "configs/quickstart.yaml",
         f"output_dir={output}", *options],
        cwd=ROOT, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    metrics = folder / "metrics.jsonl"
    while process.poll() is None:
        if metrics.exists() and len(metrics.read_text().splitlines()) >= step:
            os.killpg(process.pid, signal.SIGKILL)
            break
        time.sleep(0.05)
    assert process.wait() == -signal.SIGKILL, "the run ended before it could be killed"
    return folder


def test_what_was_sampled_ahead_is_learned_from_after_a_kill(train, tmp_path):
    # Many passes over a batch, so that sampling gets ahead.
    options = (*COMMON, "beta=0", "max_staleness=2", "num_iterations=8")
    killed = kill_at(tmp_path, STEPS // 2 + 1, *options)
    newest = latest_checkpoint(killed / "checkpoints", warn=print)
    assert newest is not None
    ahead = read_state(newest)["parts"]["source"]["ahead"]
    assert ahead
    resumed = train(tmp_path, *options, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    for kept in map(read_gathered, ahead):
        rows = resumed.rollouts(kept.step)
        rollouts = [member.rollout for group in kept.groups for member in group.members]
        for row, rollout in zip(rows, rollouts, strict=True):
            assert row["problem_id"] == rollout.problem_id
            assert row["completion_ids"] == list(rollout.completion_ids)
            assert row["policy_versions"] == list(rollout.policy_versions)
            assert np.array_equal(np.float32(row["logprobs"]), np.asarray(rollout.logprobs))


@pytest.mark.parametrize("sharding", ["ddp", "fsdp2"])
def test_two_ranks_learn_the_quickstart(train, tmp_path, sharding):
    run = train(
        tmp_path, "learner.world_size=2", f"learner.sharding={sharding}", "--json", timeout=1700
    )
    assert run.returncode == 0, run.stderr
    for scores in json.loads(run.stdout)["held_out"].values():
        assert scores["after"]["pass@1"]["value"] >= 0.75
        assert scores["pass@1_change"]["low"] > 0


def test_every_update_of_the_quickstart_can_be_made_again(train, tmp_path):
    run = train(tmp_path, "save_steps=5", "keep_last=9", timeout=1700)
    assert run.returncode == 0, run.stderr
    for row in run.metrics:
        if "loss" in row:
            assert replay_step(run.folder, row["step"], say=pytest.fail).loss_difference < 1e-6
