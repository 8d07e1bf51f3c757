"""What a short run of the quickstart leaves behind, and what holds in it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import jsonschema
import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from grpo.checkpoints import list_checkpoints, verify_checkpoint
from grpo.config.schema import RunConfig
from grpo.paths import find_model
from grpo.replay import replay_step
from grpo.waits import WORKERS
from tests.trace_schema import SCHEMA

ROOT = Path(__file__).resolve().parents[2]
STEPS = 4
GROUP = 4


def test_the_summary_has_the_figures_of_the_closing_table(short_run):
    summary = json.loads(short_run.stdout)
    assert summary == json.loads((short_run.folder / "summary.json").read_text())
    assert summary["complete"]
    assert summary["steps"] == STEPS
    for scores in summary["held_out"].values():
        assert scores["num_problems"] == 8
        for when in ("before", "after"):
            for estimate in scores[when].values():
                assert 0 <= estimate["low"] <= estimate["value"] <= estimate["high"] <= 1


def test_before_and_after_are_compared_problem_by_problem(short_run):
    folder = short_run.folder / "evaluations"
    sets = json.loads((folder / "comparison.json").read_text())["sets"]
    summary = json.loads((short_run.folder / "summary.json").read_text())
    for comparison in sets:
        change = summary["held_out"][comparison["name"]]["pass@1_change"]
        assert comparison["pass_at_k"]["1"]["value"] == pytest.approx(change["value"])
        for suffix in ("png", "svg"):
            assert (folder / f"pass-at-k-{comparison['name']}.{suffix}").is_file()


def test_the_first_step_is_on_policy_with_no_distance_to_the_reference(short_run):
    first = short_run.metrics[0]
    assert first["kl"] == pytest.approx(0.0, abs=1e-7)
    assert first["ratio/mean"] == pytest.approx(1.0, abs=1e-6)
    assert first["sampling/sampling_logp_difference/mean"] < 1e-4


def test_later_steps_move_away_from_the_reference(short_run):
    assert short_run.metrics[-1]["kl"] > 0


def test_weights_that_follow_training_move(short_run):
    betas = [row["beta"] for row in short_run.metrics]
    assert betas[0] == 0.04
    assert len(set(betas)) == STEPS
    assert [row["entropy_coef"] for row in short_run.metrics] == pytest.approx(
        [0.0, 0.005, 0.010, 0.015]
    )


def test_the_learner_begins_before_all_is_sampled(short_run):
    for row in short_run.metrics:
        assert 0.2 < row["ahead_fraction"] < 1


def test_every_metric_is_documented(short_run):
    """A first column such as `a/b`, `c` names a/b and a/c; <x> stands for any word."""
    names = set()
    for cells in re.findall(
        r"^\| (`[^|]+) \|", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE
    ):
        first, *others = re.findall(r"`([^`]+)`", cells)
        folder = first.rpartition("/")[0]
        names |= {first, *others, *(f"{folder}/{name}" for name in others)}
    patterns = [re.sub(r"<\w+>", "[^/]+", name) for name in names]
    found = {name for row in short_run.metrics for name in row} - {"step", "policy_version", "time"}
    assert len(found) > 40
    missing = {n for n in found if not any(re.fullmatch(pattern, n) for pattern in patterns)}
    assert missing == set()


def test_every_push_landed(short_run):
    for row in short_run.metrics:
        assert row["push/probe_logprob_difference"] < 1e-4
    assert [row["policy_version"] for row in short_run.metrics] == [1, 2, 3, 4]


def test_the_phases_of_a_step_add_up(short_run):
    for row in short_run.metrics:
        times = {name: value for name, value in row.items() if name.startswith("time/")}
        assert times.pop("time/step") == pytest.approx(sum(times.values()))


def test_every_rollout_is_on_disk_with_its_verdict(short_run):
    for step in range(1, STEPS + 1):
        rows = short_run.rollouts(step)
        assert len(rows) == GROUP * GROUP
        assert {row["verifier"] for row in rows} == {"math@1", "code@1"}
        assert all(row["status"] in {"correct", "incorrect", "no_answer"} for row in rows)
        assert len({row["seed"] for row in rows}) == len(rows)
        for row in rows:
            assert len(row["completion_ids"]) == len(row["logprobs"])
            assert set(row["policy_versions"]) == {step - 1}


def test_rewards_on_disk_are_the_verdicts(short_run):
    rows = short_run.rollouts(1)
    assert all(row["reward"] == float(row["status"] == "correct") for row in rows)
    assert short_run.metrics[0]["reward"] == pytest.approx(
        sum(row["reward"] for row in rows) / len(rows)
    )


def test_a_checkpoint_is_a_model_that_transformers_loads(short_run):
    checkpoints = list_checkpoints(short_run.folder / "checkpoints")
    assert [path.name for path in checkpoints] == ["checkpoint-2", "checkpoint-4"]
    for path in checkpoints:
        verify_checkpoint(path)
    policy = checkpoints[-1] / "policy"
    trained = AutoModelForCausalLM.from_pretrained(policy)
    start = AutoModelForCausalLM.from_pretrained(find_model("embedded:quickstart"))
    moved = [
        not torch.equal(a, b) for a, b in zip(trained.parameters(), start.parameters(), strict=True)
    ]
    assert any(moved)
    assert AutoTokenizer.from_pretrained(policy).chat_template


def test_the_sampled_log_probabilities_are_the_policys(short_run):
    model = AutoModelForCausalLM.from_pretrained(
        find_model("embedded:quickstart"), dtype=torch.float32
    )
    for row in short_run.rollouts(1):
        ids = torch.tensor([row["prompt_ids"] + row["completion_ids"]])
        with torch.no_grad():
            logits = model(ids).logits[0, len(row["prompt_ids"]) - 1 : -1]
        logprobs = logits.log_softmax(-1).gather(1, ids[0, len(row["prompt_ids"]) :, None])
        difference = (logprobs.squeeze(1) - torch.tensor(row["logprobs"])).abs().max()
        assert difference < 1e-4


def test_configuration_and_environment_are_kept(short_run):
    config = yaml.safe_load((short_run.folder / "config.yaml").read_text())
    assert RunConfig.model_validate(config).beta == 0.04
    environment = json.loads((short_run.folder / "environment.json").read_text())
    assert environment["packages"]["torch"].startswith("2.")
    assert environment["sandbox"]["holds_hostile_programs"] is True


def test_tensorboard_reads_the_metrics(short_run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(short_run.folder / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("reward")] == list(range(1, STEPS + 1))
    assert "heldout/maths/pass@1" in events.Tags()["scalars"]


def test_a_resumed_run_is_the_run_that_was_never_stopped(train, short, short_run, tmp_path):
    shutil.copytree(short_run.folder, tmp_path / "quickstart")
    shutil.rmtree(tmp_path / "quickstart/checkpoints/checkpoint-4")
    resumed = train(tmp_path, *short, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "after step 2" in resumed.stdout

    for row, expected in zip(resumed.metrics, short_run.metrics, strict=True):
        changing = (
            "time", "second", "waits/", "queues/", "utilisation", "hidden_fraction",
        )  # fmt: skip
        compared = {key for key in expected if not any(part in key for part in changing)}
        assert {key: row[key] for key in compared} == {key: expected[key] for key in compared}
    for step in (3, 4):
        ours, theirs = resumed.rollouts(step), short_run.rollouts(step)
        assert [row["logprobs"] for row in ours] == [row["logprobs"] for row in theirs]
    weights = "checkpoints/checkpoint-4/policy/model.safetensors"
    assert (resumed.folder / weights).read_bytes() == (short_run.folder / weights).read_bytes()


@pytest.mark.long
def test_a_fork_goes_on_with_two_ranks_that_share_the_weights(train, short, short_run, tmp_path):
    """From one rank's checkpoint to FSDP2: same rollouts, same loss, pushed from the shards."""
    checkpoint = short_run.folder / "checkpoints/checkpoint-2"
    forked = train(
        tmp_path,
        *short,
        "learner.world_size=2",
        "learner.sharding=fsdp2",
        "eval_before_train=false",
        "metric_for_best_model=heldout/maths/pass@1",
        f"--fork={checkpoint}",
    )
    assert forked.returncode == 0, forked.stderr
    assert f"forked     from {checkpoint} after step 2" in forked.stdout
    assert [row["step"] for row in forked.metrics] == [3, 4]
    first, expected = forked.metrics[0], short_run.metrics[2]
    for name in ("reward", "loss", "kl", "grad_norm", "entropy"):
        assert first[name] == pytest.approx(expected[name], rel=1e-3, abs=1e-6), name
    assert max(row["push/probe_logprob_difference"] for row in forked.metrics) < 1e-4
    assert (forked.folder / "checkpoints/best").resolve().name == "checkpoint-4"
    verify_checkpoint(forked.folder / "checkpoints/checkpoint-4")


@pytest.mark.parametrize("step", [1, 3, 4])
def test_an_update_of_the_run_can_be_made_again(short_run, step):
    replay = replay_step(short_run.folder, step, say=pytest.fail)
    assert replay.loss_difference < 1e-6
    assert replay.metrics["grad_norm"] == pytest.approx(replay.logged["grad_norm"], rel=1e-5)
    [samples] = replay.contributions
    assert sum(part.loss for part in samples) == pytest.approx(replay.metrics["loss"], abs=1e-6)


def test_another_configuration_cannot_go_on_with_the_run(train, short, short_run):
    done = train(short_run.folder.parent, *short, "learning_rate=1e-3", "--resume")
    assert done.returncode == 2
    assert "learning_rate" in done.stderr
    assert "Traceback" not in done.stderr


def test_eval_of_a_checkpoint_repeats_the_runs_own_score(verigrad, short_run, tmp_path):
    done = verigrad("eval", short_run.folder, f"--output={tmp_path / 'scores'}", "--json")
    assert done.returncode == 0, done.stderr
    expected = json.loads((short_run.folder / "evaluations/step-000004.json").read_text())
    assert json.loads(done.stdout)["sets"] == expected["sets"]
    assert (tmp_path / "scores/evaluation.json").is_file()


def test_each_steps_trace_opens_in_perfetto_and_its_times_add_up(short_run):
    for row in short_run.metrics:
        file = short_run.folder / f"traces/step-{row['step']:06d}.json"
        trace = json.loads(file.read_text())
        jsonschema.validate(trace, SCHEMA)
        whole = row["time/step"]
        slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
        assert sum(event["dur"] for event in slices) / 1e6 == pytest.approx(
            whole - row["time/loop_overhead"], rel=0.02
        )
        for worker in WORKERS:
            waits = [v for name, v in row.items() if name.startswith(f"waits/{worker}/")]
            assert sum(waits) == pytest.approx(whole, rel=0.02)
    summary = json.loads((short_run.folder / "summary.json").read_text())
    walls = sum(row["time/step"] for row in short_run.metrics)
    assert summary["step_seconds"]["step"] == pytest.approx(walls, rel=0.02)
    first, second, *_ = short_run.metrics
    assert second["time"] - first["time"] == pytest.approx(second["time/step"], rel=0.02, abs=0.02)
