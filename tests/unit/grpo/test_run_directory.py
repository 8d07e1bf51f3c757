import json

import pytest
import yaml

from grpo.config.data import DataConfig
from grpo.config.schema import RunConfig
from grpo.evaluation.scores import EvaluationResult, score_set
from grpo.packed import pack_logprobs, pack_token_ids
from grpo.run_directory import RunDirectory
from grpo.skips import SkipGuard
from grpo.values import Batch, Rollout, ScoredGroup, ScoredRollout, StepReport, TrainSample
from tests.recorders import make_recorder
from verifiers.errors import UserError
from verifiers.problem import Problem
from verifiers.verdict import Reason, Status, Verdict


def make_group(name, *statuses):
    problem = Problem(id=name, prompt="?", verifier="math", reference="1", source="f:1")
    return ScoredGroup(
        problem=problem,
        members=tuple(make_member(name, i, status) for i, status in enumerate(statuses)),
    )


def make_member(name, member, status):
    score = {Status.CORRECT: 1.0, Status.ERROR: None}.get(status, 0.0)
    verdict = Verdict(status=status, score=score, reason=Reason.DIFFERENT, verifier="math@1")
    rollout = Rollout(
        problem_id=name,
        member=member,
        prompt_ids=(1,),
        completion_ids=(2, 0),
        logprobs=(-0.5, -0.25),
        text="né\n",
        finish_reason="stop",
        policy_versions=(3, 3),
        seed=9,
    )
    return ScoredRollout(rollout=rollout, verdict=verdict, reward=score)


def make_result(step, *groups):
    score = score_set("maths", groups, num_samples=2, ks=(1, 2), seed=0)
    return EvaluationResult(
        step=step,
        policy_version=step,
        model="m",
        temperature=1.0,
        top_p=1.0,
        max_completion_length=8,
        seed=0,
        seconds=1.5,
        sets=(score,),
    )


RIGHT, WRONG, ERROR = Status.CORRECT, Status.INCORRECT, Status.ERROR


def test_a_taken_name_gets_a_number_and_nothing_is_overwritten(tmp_path):
    paths = [RunDirectory.create(str(tmp_path), "run").path.name for _ in range(3)]
    assert paths == ["run", "run-2", "run-3"]


def test_a_folder_that_cannot_be_made_is_the_users_to_cure(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="output_dir"):
        RunDirectory.create(str(tmp_path / "file"), "run")


def test_the_configuration_is_written_resolved(tmp_path):
    directory = RunDirectory(tmp_path)
    config = RunConfig(model="m", data=(DataConfig(path="a.jsonl"),))
    directory.write_config(config)
    assert (
        RunConfig.model_validate(yaml.safe_load((tmp_path / "config.yaml").read_text())) == config
    )


def test_a_reference_of_megabytes_is_shortened(tmp_path):
    problem = Problem(
        id="a",
        prompt="?",
        verifier="code",
        reference={"tests": [{"kind": "stdio", "input": "1" * 100_000, "output": "1"}]},
        source="f:1",
    )
    group = ScoredGroup(problem=problem, members=(make_member("a", 0, RIGHT),))
    RunDirectory(tmp_path).write_rollouts(1, [group])
    (line,) = (tmp_path / "rollouts/step-000001.jsonl").read_text().splitlines()
    assert len(line) < 25_000
    assert json.loads(line)["reference"].startswith('{"tests": [')


def test_every_rollout_is_kept_with_verdict_reason_and_log_probabilities(tmp_path):
    RunDirectory(tmp_path).write_rollouts(4, [make_group("a", RIGHT, ERROR)])
    rows = [
        json.loads(line)
        for line in (tmp_path / "rollouts/step-000004.jsonl").read_text().splitlines()
    ]
    assert [(row["member"], row["status"], row["reward"]) for row in rows] == [
        (0, "correct", 1.0),
        (1, "error", None),
    ]
    assert rows[0]["text"] == "né\n"
    assert rows[0]["logprobs"] == [-0.5, -0.25]
    assert rows[0]["policy_versions"] == [3, 3]
    assert not list(tmp_path.rglob("*.partial"))


def test_a_batch_that_was_skipped_is_written_with_its_tokens(tmp_path):
    sample = TrainSample(
        problem_id="a",
        member=0,
        prompt_ids=pack_token_ids([1]),
        completion_ids=pack_token_ids([2, 0]),
        sampler_logprobs=pack_logprobs([-0.5, -0.25]),
        advantage=1.0,
        policy_version=0,
    )
    guard = SkipGuard(RunDirectory(tmp_path).write_json, max_in_a_row=2)
    guard.note(Batch(step=1, samples=(sample,), num_loss_tokens=2), "non-finite loss")
    (kept,) = json.loads((tmp_path / "skipped/step-000001.json").read_text())["samples"]
    assert (kept["completion_ids"], kept["sampler_logprobs"]) == ([2, 0], [-0.5, -0.25])


def test_resuming_forgets_what_came_after_the_checkpoint(tmp_path):
    directory = RunDirectory(tmp_path)
    for step in (1, 2, 3):
        directory.append_line("metrics.jsonl", {"step": step})
        directory.append_line("warnings.jsonl", {"step": step, "name": "kl"})
        directory.write_rollouts(step, [make_group("a", RIGHT)])
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "rew')  # a run that was killed in the middle of a line
    directory.forget_after(2)
    for name in ("metrics.jsonl", "warnings.jsonl"):
        lines = (tmp_path / name).read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines] == [1, 2]
    assert sorted(file.name for file in (tmp_path / "rollouts").iterdir()) == [
        "step-000001.jsonl",
        "step-000002.jsonl",
    ]


def test_unverified_samples_are_in_no_estimate_but_beside_it():
    groups = [
        make_group("a", RIGHT, WRONG),
        make_group("b", RIGHT, ERROR),
        make_group("c", WRONG, WRONG),
    ]
    score = score_set("s", groups, num_samples=2, ks=(1, 2), seed=0)
    assert score.num_left_out == 1
    assert score.pass_at_k[1].value == pytest.approx(0.25)
    assert score.pass_at_k[2].value == pytest.approx(0.5)
    assert score.unverified_fraction == pytest.approx(1 / 6)


def test_the_recorder_sums_a_run_up(tmp_path, capsys):
    recorder = make_recorder(tmp_path)
    before = [make_group("a", RIGHT, WRONG), make_group("b", WRONG, WRONG)]
    after = [make_group("a", RIGHT, RIGHT), make_group("b", RIGHT, WRONG)]
    recorder.keep_evaluation(make_result(0, *before), before)
    for step in (1, 2):
        metrics = {"reward": 0.5, "loss": 0.1, "time/step": 2.0, "time/update": 1.5}
        recorder.keep_step(
            StepReport(step=step, policy_version=step, metrics=metrics, dropped={"no_signal": 8})
        )
    recorder.keep_evaluation(make_result(2, *after), after)
    summary = recorder.close(complete=True)

    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    held_out = summary["held_out"]["maths"]
    assert held_out["before"]["pass@1"]["value"] == pytest.approx(0.25)
    assert held_out["after"]["pass@1"]["value"] == pytest.approx(0.75)
    assert held_out["pass@1_change"]["value"] == pytest.approx(0.5)
    assert summary["dropped"] == {"no_signal": 16}
    assert summary["step_seconds"] == {"step": 4.0, "update": 3.0}
    printed = capsys.readouterr().out
    for text in ("time to first step", "dropped 8 no_signal", "loop overhead", "+0.500", "0.750 ["):
        assert text in printed


UNVERIFIED, HALF, SCORED = (ERROR, ERROR), (RIGHT, ERROR), (RIGHT, WRONG)


@pytest.mark.parametrize("before", [UNVERIFIED, HALF, SCORED])
@pytest.mark.parametrize("after", [UNVERIFIED, HALF, SCORED])
def test_whatever_was_not_verified_a_run_is_summed_up(tmp_path, before, after):
    recorder = make_recorder(tmp_path)
    for step, statuses in enumerate((before, after)):
        groups = [make_group("a", *statuses)]
        recorder.keep_evaluation(make_result(step, *groups), groups)
    summary = recorder.close(complete=True)

    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    change = summary["held_out"]["maths"]["pass@1_change"]
    assert (change is None) == (UNVERIFIED in (before, after))


def test_a_symptom_is_shown_with_examples_and_kept(tmp_path, capsys):
    directory = RunDirectory(tmp_path)
    recorder = make_recorder(tmp_path)
    for step in range(1, 6):
        recorder.keep_rollouts(step, [make_group("a", Status.NO_ANSWER, WRONG)])
        metrics = {"verdicts/no_answer": 0.5, "time/step": 1.0}
        recorder.keep_step(StepReport(step=step, policy_version=step, metrics=metrics))
    recorder.keep_breach(6, "a check is broken")
    summary = recorder.close(complete=True)

    warning, breach = directory.read_lines("warnings.jsonl")
    assert (warning["name"], warning["step"]) == ("no_answer", 5)
    assert (breach["name"], breach["step"], breach["text"]) == ("invariant", 6, "a check is broken")
    assert [each["text"] for each in summary["warnings"]] == [warning["text"], breach["text"]]
    printed = capsys.readouterr().out
    assert "warning [no_answer]: in 50% of the completions" in printed
    assert "a: no_answer (different), answer 'né\\n'" in printed
