"""Metrics reach the trackers, and what is missing for one is said before anything starts."""

import sys
import types
from dataclasses import replace

import pytest

from grpo.console import Console
from grpo.incidents import IncidentLog
from grpo.recorder import RunRecorder
from grpo.run_directory import RunDirectory
from grpo.timing import Laps
from grpo.trackers import NUM_SHOWN, check_trackers, open_trackers
from grpo.values import Rollout, ScoredGroup, ScoredRollout, StepReport
from verifiers.errors import UserError
from verifiers.problem import Problem
from verifiers.verdict import Reason, Status, Verdict


class FakeWandb(types.ModuleType):
    """Stands in for wandb, which is an extra: notes what it is asked."""

    errors = types.SimpleNamespace(Error=type("Error", (Exception,), {}))

    def __init__(self, *, refuses=None):
        super().__init__("wandb")
        self.started, self.rows, self.finished, self.refuses = [], [], 0, refuses

    def init(self, **options):
        if self.refuses:
            raise self.errors.Error(self.refuses)
        self.started.append(options)
        return self

    def define_metric(self, pattern, step_metric):
        assert (pattern, step_metric) == ("*", "step")

    def log(self, row):
        self.rows.append(row)

    @staticmethod
    def Table(*, columns, data):  # noqa: N802 - the name that wandb has
        assert all(len(row) == len(columns) for row in data)
        return [dict(zip(columns, row, strict=True)) for row in data]

    def finish(self):
        self.finished += 1


@pytest.fixture
def wandb(monkeypatch):
    module = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", module)
    return module


def test_tensorboard_events_hold_every_metric(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with open_trackers(["tensorboard"], tmp_path, {}) as (tracker,):
        tracker.log(1, {"loss": 0.5})
        tracker.log(2, {"loss": 0.25})
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("loss")] == [(1, 0.5), (2, 0.25)]


def test_wandb_goes_on_in_the_same_run_after_a_resume(tmp_path, wandb, monkeypatch):
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    for step in (1, 2):
        with open_trackers(["wandb"], tmp_path, {"beta": 0.1}) as (tracker,):
            tracker.log(step, {"loss": 0.5})
    first, second = wandb.started
    assert first["id"] == second["id"]
    assert (first["project"], first["config"]) == ("verigrad", {"beta": 0.1})
    assert wandb.rows == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.5}]
    assert wandb.finished == 2


def make_group(number, prompt, *rewards):
    problem = Problem(id=f"p{number}", prompt=prompt, verifier="exact", reference="1", source="r:1")
    rollout = Rollout(
        problem_id=problem.id,
        member=0,
        prompt_ids=(1,),
        completion_ids=(2,),
        logprobs=(-1.0,),
        text="42",
        finish_reason="stop",
        policy_versions=(0,),
        seed=0,
    )
    verdict = Verdict(status=Status.CORRECT, score=1.0, reason=Reason.EQUAL_TEXT, verifier="t@1")
    return ScoredGroup(
        problem=problem,
        members=tuple(
            ScoredRollout(rollout=replace(rollout, member=i), verdict=verdict, reward=reward)
            for i, reward in enumerate(rewards)
        ),
    )


def test_a_steps_first_completions_are_a_table_of_wandb(tmp_path, wandb):
    groups = [make_group(0, "How many?", 1.0, None)]
    chat = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"})
    groups += [make_group(number, chat, *[0.5] * 8) for number in range(1, 9)]
    trackers = open_trackers(["tensorboard", "wandb"], tmp_path, {})
    with trackers as opened:
        recorder = RunRecorder(
            directory=RunDirectory(tmp_path),
            console=Console(),
            seed=0,
            trackers=opened,
            laps=Laps(0.0),
            incidents=IncidentLog(write=lambda _: None, say=lambda _: None),
        )
        recorder.keep_rollouts(3, groups)
        recorder.keep_step(StepReport(step=3, policy_version=1, metrics={"time/step": 1.0}))
        recorder.settle()
    metrics, shown = wandb.rows
    assert metrics == {"step": 3, "time/step": 1.0}
    assert shown["step"] == 3
    table = shown["completions"]
    assert len(table) == NUM_SHOWN
    assert table[1] == {
        "step": 3,
        "problem": "p0",
        "member": 1,
        "prompt": "How many?",
        "completion": "42",
        "status": "correct",
        "reason": Reason.EQUAL_TEXT.value,
        "reward": None,
    }
    assert table[2]["prompt"] == "Be brief.\n\nWhy?"


def test_trackers_are_closed_when_the_run_fails(tmp_path, wandb):
    with pytest.raises(KeyboardInterrupt), open_trackers(["wandb"], tmp_path, {}):
        raise KeyboardInterrupt
    assert wandb.finished == 1


def test_a_wandb_that_does_not_start_is_the_users_to_cure(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", FakeWandb(refuses="no API key"))
    with pytest.raises(UserError, match=r"no API key.*WANDB_API_KEY"):
        open_trackers(["wandb"], tmp_path, {}).__enter__()


def test_a_tracker_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr("grpo.trackers.find_spec", lambda name: None)
    check_trackers(["tensorboard"])
    with pytest.raises(UserError, match=r"verigrad\[wandb\]"):
        check_trackers(["wandb"])
