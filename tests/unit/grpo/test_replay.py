"""`verigrad replay`: updates made again from what a run left on disk."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from grpo.assemble import assemble_batch
from grpo.checkpoints import write_checkpoint
from grpo.cli import main
from grpo.config.schema import RunConfig
from grpo.learner.contributions import explain_update
from grpo.replay import replay_step
from grpo.run_directory import RunDirectory
from grpo.values import Rollout, ScoredGroup, ScoredRollout
from grpo.wiring.learner import load_learner
from grpo.wiring.stages import make_batch_policy
from verifiers.errors import UserError
from verifiers.problem import Problem
from verifiers.verdict import Reason, Status, Verdict

NUM_STEPS = 4


def make_group(problem_id, step, generator, signal=True):
    problem = Problem(id=problem_id, prompt="?", verifier="math", reference="1", source="f:1")

    def make_member(member):
        right = bool((member + step) % 2) and signal
        length = 1 + int(torch.randint(0, 7, (1,), generator=generator))
        rollout = Rollout(
            problem_id=problem_id,
            member=member,
            prompt_ids=(1, 2 + len(problem_id)),
            completion_ids=tuple(torch.randint(0, 23, (length,), generator=generator).tolist()),
            logprobs=(-3.0,) * length,
            text="x",
            finish_reason="stop",
            policy_versions=(step - 1,) * length,
            seed=member,
        )
        verdict = Verdict(
            status=Status.CORRECT if right else Status.INCORRECT,
            score=float(right),
            reason=Reason.EQUAL_TEXT if right else Reason.DIFFERENT,
            verifier="math@1",
        )
        return ScoredRollout(rollout=rollout, verdict=verdict, reward=float(right))

    return ScoredGroup(problem=problem, members=tuple(make_member(m) for m in range(4)))


def assemble(config, groups, step):
    return assemble_batch(groups, step=step, policy=make_batch_policy(config))[0]


@pytest.fixture
def make_run(options, tmp_path):
    """A function that makes a run's folder: four steps, the third without any signal."""

    def make(**changes):
        config = RunConfig.model_validate(
            {
                "model": options.model,
                "data": {"path": "d.jsonl"},
                "steps": NUM_STEPS,
                "beta": 0.1,
                "learning_rate": 0.01,
                "warmup_steps": 2,
                "max_completion_length": 8,
                "max_prompt_length": 8,
                "max_tokens_per_microbatch": 40,
                "learner": {"num_threads": 1},
                "invariants": {"max_logprob_difference": 100.0},
            }
            | changes
        )
        directory = RunDirectory.create(str(tmp_path), "run")
        directory.write_config(config)
        learner, generator = load_learner(config), torch.Generator().manual_seed(0)
        for step in range(1, NUM_STEPS + 1):
            # The same problem twice in a row: its groups must not be taken for one.
            groups = [make_group(p, step, generator, signal=step != 3) for p in ("a", "bb", "bb")]
            directory.write_rollouts(step, groups)
            batch = assemble(config, groups, step)
            row = {"step": step, "skipped": "no group has a signal"}
            if batch.num_loss_tokens:
                report = learner.update(batch)
                learner.policy_version += 1
                row = {"step": step} | dict(report.metrics)
            directory.append_line("metrics.jsonl", row)
            if step == 2:
                with write_checkpoint(
                    directory.checkpoints,
                    step=2,
                    state={"step": 2, "policy_version": 2, "num_drawn": 0},
                ) as folder:
                    learner.state.begin_save(folder)
                    learner.state.finish_save()
        return directory.path

    return make


@pytest.mark.parametrize(("step", "num_replayed"), [(1, 0), (2, 1), (4, 0)])
def test_every_update_comes_out_as_it_was_logged(make_run, step, num_replayed):
    run = make_run()
    replay = replay_step(run, step, say=pytest.fail)
    assert replay.num_replayed == num_replayed
    assert replay.begun_from.endswith("checkpoint-2" if step > 2 else "tiny_policy0")
    for name in ("loss", "grad_norm", "kl", "learning_rate"):
        assert replay.metrics[name] == replay.logged[name], name


def test_the_parts_add_up_to_the_update(make_run):
    replay = replay_step(make_run(), 4, say=pytest.fail)
    [samples] = replay.contributions
    assert len(samples) == 12
    assert sum(part.loss for part in samples) == pytest.approx(replay.metrics["loss"], abs=1e-6)
    assert sum(part.grad_share for part in samples) == pytest.approx(1.0, abs=1e-6)
    assert max(part.grad_norm for part in samples) < replay.metrics["grad_norm"] * len(samples)


def test_parts_of_several_mini_batches_are_told_apart(make_run):
    replay = replay_step(make_run(num_mini_batches=3), 1, say=pytest.fail)
    assert [len(samples) for samples in replay.contributions] == [4, 4, 4]


def test_explaining_leaves_the_weights_alone(make_run):
    run = make_run()
    config = RunConfig.model_validate(json.loads(json.dumps({"model": "x", "data": {"path": "d"}})))
    learner = load_learner(replace_model(config, run))
    before = {name: tensor.clone() for name, tensor in learner.named_weights()}
    explain_update(learner, assemble(config, RunDirectory(run).read_rollouts(1), 1))
    assert all(torch.equal(before[name], tensor) for name, tensor in learner.named_weights())


def replace_model(config, run):
    folder = run / "checkpoints" / "checkpoint-2" / "policy"
    return config.model_copy(
        update={
            "model": str(folder),
            "invariants": config.invariants.model_copy(update={"max_logprob_difference": 100.0}),
        }
    )


def test_a_run_that_was_changed_afterwards_is_noticed(make_run, capsys):
    run = make_run()
    directory = RunDirectory(run)
    groups = directory.read_rollouts(1)
    shorter = [replace(g, members=(*g.members[:2], *g.members[2:][::-1])) for g in groups[::-1]]
    directory.write_rollouts(1, [shorter[0]])
    assert main(["replay", str(run), "2"]) == 1
    assert "step 1: the loss is" in capsys.readouterr().err


def test_the_command_prints_figures_and_samples(make_run, capsys):
    run = make_run()
    assert main(["replay", str(run), "2", "--top", "3"]) == 0
    printed = capsys.readouterr().out
    assert "0.0e+00 apart" in printed
    assert "and 9 more" in printed
    assert main(["replay", str(run), "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["loss_difference"] == 0.0
    assert len(found["samples"]) == 12
    assert found["samples"][0]["sample"]["problem_id"] == "a"


def test_steps_that_cannot_be_replayed_are_told(make_run, tmp_path):
    run = make_run()
    with pytest.raises(UserError, match="has 1 to 4"):
        replay_step(run, 9, say=pytest.fail)
    with pytest.raises(UserError, match="no group has a signal"):
        replay_step(run, 3, say=pytest.fail)
    with pytest.raises(UserError, match=r"no config\.yaml"):
        replay_step(tmp_path / "nowhere", 1, say=pytest.fail)
    (run / "rollouts" / "step-000001.jsonl").unlink()
    with pytest.raises(UserError, match="no rollouts of step 1"):
        replay_step(run, 2, say=pytest.fail)
