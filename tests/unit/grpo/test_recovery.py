"""What a run does when learner ranks are lost, and when the disk is full."""

from __future__ import annotations

import errno
import json
import shutil
import time
from dataclasses import asdict

import pytest

from grpo.checkpointer import RunCheckpointer
from grpo.checkpoints import DiskFull, list_checkpoints
from grpo.console import Console
from grpo.incidents import IncidentLog, make_incident_table
from grpo.learner.errors import LearnerDied
from grpo.ledger import PromptLedger
from grpo.protocols import Progress
from grpo.recorder import RunRecorder
from grpo.recovery import LearnerRecovery
from grpo.run_directory import RunDirectory
from grpo.timing import Laps
from grpo.values import StepReport
from verifiers.incident import Incident


class FakeLearner:
    def __init__(self):
        self.events = []
        self.full = False

    def restart(self, timeout_s):
        self.events.append("restart")

    def load(self, folder):
        self.events.append(f"load {folder.name}")

    def publish(self, policy_version, probe):
        self.events.append(f"publish {policy_version}")
        return {}

    def begin_save(self, folder):
        (folder / "weights").write_text("w")

    def finish_save(self):
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def directory(tmp_path):
    return RunDirectory.create(str(tmp_path), "run")


def make_recovery(directory, learner, notes, max_restarts=1):
    return LearnerRecovery(
        learner=learner,
        ledger=PromptLedger("grpo"),
        publisher=learner,
        directory=directory,
        probe=(1, 2),
        max_restarts=max_restarts,
        start_timeout_s=1.0,
        settle=lambda: None,
        note=notes.append,
        warn=pytest.fail,
    )


def make_checkpointer(directory, learner, notes, keep_last=2):
    return RunCheckpointer(directory.checkpoints, learner, keep_last=keep_last, note=notes.append)


def test_the_run_goes_back_to_the_last_checkpoint_and_forgets_what_came_after(directory):
    learner, notes = FakeLearner(), []
    checkpointer = make_checkpointer(directory, learner, notes)
    checkpointer.save(Progress(step=2, policy_version=1))
    checkpointer.finish()
    for step in range(1, 5):
        directory.append_line("metrics.jsonl", {"step": step})
    progress = Progress(step=4, policy_version=3)
    make_recovery(directory, learner, notes).recover(progress, LearnerDied("rank 0 died"))
    assert progress == Progress(step=2, policy_version=1)
    assert learner.events == ["restart", "load checkpoint-2", "publish 1"]
    assert [row["step"] for row in directory.read_lines("metrics.jsonl")] == [1, 2]
    (incident,) = notes
    assert incident.num_redone == 3, "steps 3 and 4, and the one in hand"


def test_without_a_checkpoint_the_run_begins_anew(directory):
    learner, notes = FakeLearner(), []
    progress = Progress(step=3, policy_version=3)
    make_recovery(directory, learner, notes).recover(progress, LearnerDied("rank 0 died"))
    assert progress == Progress()
    assert learner.events == ["restart", "publish 0"]


def test_restarts_are_bounded(directory):
    recovery = make_recovery(directory, FakeLearner(), [], max_restarts=1)
    recovery.recover(Progress(), LearnerDied("first"))
    with pytest.raises(LearnerDied, match="second"):
        recovery.recover(Progress(), LearnerDied("second"))


def test_a_learner_that_dies_again_while_it_starts_is_started_once_more(directory):
    class Dying(FakeLearner):
        def restart(self, timeout_s):
            super().restart(timeout_s)
            if len(self.events) < 3:
                raise LearnerDied("its node has died")

    learner, notes = Dying(), []
    make_recovery(directory, learner, notes, max_restarts=3).recover(
        Progress(step=1), LearnerDied("first")
    )
    assert learner.events == ["restart", "restart", "restart", "publish 0"]
    assert [incident.cause for incident in notes] == ["first", *["its node has died"] * 2]
    assert [incident.num_redone for incident in notes] == [2, 0, 0], "nothing is counted twice"
    with pytest.raises(LearnerDied, match="its node has died"):
        make_recovery(directory, Dying(), [], max_restarts=2).recover(
            Progress(), LearnerDied("first")
        )


@pytest.fixture
def full_disk(monkeypatch):
    """The machine says that its disks are full."""
    usage = shutil.disk_usage("/")._replace(free=0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)


@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_costs_older_checkpoints_but_not_the_run(directory):
    learner, notes = FakeLearner(), []
    checkpointer = make_checkpointer(directory, learner, notes)
    checkpointer.save(Progress(step=1))
    checkpointer.save(Progress(step=2))
    checkpointer.settle()
    learner.full = True
    checkpointer.save(Progress(step=3))
    checkpointer.save(Progress(step=4))
    checkpointer.settle()
    assert [path.name for path in list_checkpoints(directory.checkpoints)] == ["checkpoint-2"]
    assert [incident.action for incident in notes] == ["older ones removed", "not written"]
    with pytest.raises(DiskFull):
        checkpointer.finish()
    learner.full = False
    checkpointer.finish()
    names = [path.name for path in list_checkpoints(directory.checkpoints)]
    assert names == ["checkpoint-2", "checkpoint-4"]


def test_another_error_at_a_checkpoint_is_not_taken_for_a_full_disk(directory):
    learner = FakeLearner()
    learner.full = True
    checkpointer = make_checkpointer(directory, learner, [])
    checkpointer.save(Progress(step=1))
    with pytest.raises(OSError, match="No space"):
        checkpointer.finish()


def make_log(directory, said):
    return IncidentLog(
        write=lambda row: directory.append_line("incidents.jsonl", row), say=said.append
    )


def test_records_that_do_not_fit_on_the_disk_are_counted_and_the_run_goes_on(directory):
    said = []
    log = make_log(directory, said)
    recorder = RunRecorder(
        directory=directory,
        console=Console(),
        seed=0,
        trackers=(),
        laps=Laps(time.perf_counter()),
        incidents=log,
    )
    (directory.path / "metrics.jsonl").symlink_to("/dev/full")
    recorder.keep_step(StepReport(step=1, policy_version=1, metrics={"time/step": 1.0}))
    (directory.path / "metrics.jsonl").unlink()
    recorder.keep_step(
        StepReport(
            step=2,
            policy_version=1,
            metrics={"time/step": 2.0},
            dropped={"no_signal": 4},
            skipped="no group has a signal",
        )
    )
    summary = recorder.close(complete=True)
    (incident,) = summary["incidents"]
    assert (incident["worker"], incident["action"]) == ("metrics of step 1", "not kept")
    assert summary["steps"] == 1
    assert summary["step_seconds"] == {"step": 2.0}
    assert summary["dropped"] == {"no_signal": 4}
    assert summary["steps_without_update"] == {"no group has a signal": 1}


def test_an_incident_is_said_kept_and_summed(directory):
    said = []
    log = make_log(directory, said)
    incident = Incident(
        stage="rollout",
        worker="rollout engine 0",
        cause="rollout engine 0 died.",
        action="restarted",
        problem_ids=("a", "b", "c", "d"),
        num_redone=8,
    )
    log.note(incident)
    log.note(incident)
    assert said[0] == (
        "! rollout: rollout engine 0 died. -> restarted; 8 done again; problems a, b, c and 1 more"
    )
    lines = (directory.path / "incidents.jsonl").read_text().splitlines()
    kept = [json.loads(line) for line in lines]
    assert [row | {"time": 0} for row in kept] == [
        json.loads(json.dumps({"time": 0, **asdict(incident)}))
    ] * 2
    table = make_incident_table(log.incidents)
    assert [list(column.cells) for column in table.columns][-3:] == [["2"], ["16"], ["0"]]
