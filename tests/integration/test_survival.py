"""Parts that die or hang in the middle of a run, which goes on and loses no sample."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys

import psutil
import pytest

from grpo.checkpoints import list_checkpoints, verify_checkpoint
from sandbox.owner import LABEL

ENGINE, VERIFIER, RANK = "ray::EngineActor", "ray::JudgeActor", "ray::LearnerRank"


class FaultyRun:
    """A run whose output is followed, so that something can be done to it after a step."""

    def __init__(self, folder, *arguments):
        self.folder = folder / "quickstart"
        self.marker = str(folder)
        self.lines = []
        command = [sys.executable, "-m", "grpo", "train", "configs/quickstart.yaml"]
        self.process = subprocess.Popen(
            [*command, f"output_dir={folder}", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env=os.environ | {"VERIGRAD_TEST_RUN": self.marker},
        )

    def wait_for(self, text):
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if text in line:
                return
        pytest.fail(f"the run ended before {text!r}:\n" + "".join(self.lines))

    def finish(self):
        rest, _ = self.process.communicate(timeout=550)
        self.lines.append(rest)
        assert self.process.returncode == 0, "".join(self.lines)
        return json.loads((self.folder / "summary.json").read_text())

    def find(self, title):
        """The process of one of the run's actors."""
        for process in psutil.process_iter(["cmdline"]):
            try:
                command = process.info["cmdline"] or [""]
                if command[0].startswith(title) and self.marker == process.environ().get(
                    "VERIGRAD_TEST_RUN"
                ):
                    return process.pid
            except psutil.Error:
                continue
        return pytest.fail(f"no process {title}")

    def process_ids(self):
        """Of every process of the run, as text."""
        found = set()
        for process in psutil.process_iter():
            try:
                if process.environ().get("VERIGRAD_TEST_RUN") == self.marker:
                    found.add(str(process.pid))
            except psutil.Error:
                continue
        return found

    def kill(self, title):
        os.kill(self.find(title), signal.SIGKILL)

    def check_that_no_sample_is_lost_or_counted_twice(self, steps, group, groups):
        """Every step is there once, and every step has each member of each group once."""
        rows = (self.folder / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(row)["step"] for row in rows] == list(range(1, steps + 1))
        for step in range(1, steps + 1):
            file = self.folder / f"rollouts/step-{step:06d}.jsonl"
            rollouts = [json.loads(line) for line in file.read_text().splitlines()]
            assert len(rollouts) == group * groups
            assert len({row["seed"] for row in rollouts}) == len(rollouts)
            assert all(row["status"] not in {"error", "bad_gold"} for row in rollouts)


@pytest.fixture
def start(tmp_path):
    runs = []

    def _start(*arguments, folder=tmp_path):
        runs.append(FaultyRun(folder, *arguments))
        return runs[-1]

    yield _start
    for run in runs:
        if run.process.poll() is None:
            os.killpg(run.process.pid, signal.SIGKILL)
        run.process.stdout.close()


@pytest.mark.long
def test_a_run_outlives_the_death_of_each_of_its_parts(start, short):
    run = start(*short, "steps=8", "save_steps=2", "evaluation.data=[]")
    run.wait_for("step 1/")
    run.kill(ENGINE)
    run.wait_for("step 2/")
    run.kill(VERIFIER)
    run.wait_for("step 3/")
    run.kill(RANK)
    summary = run.finish()
    run.check_that_no_sample_is_lost_or_counted_twice(steps=8, group=4, groups=4)
    by_stage = {incident["stage"]: incident for incident in summary["incidents"]}
    assert by_stage["rollout"]["action"] == "restarted"
    assert by_stage["learner"]["action"] == "restarted from step 2"
    assert by_stage["verification"]["action"] == "restarted"
    assert summary["steps"] == 8
    assert "What was lost and redone" in "".join(run.lines)
    for checkpoint in list_checkpoints(run.folder / "checkpoints"):
        verify_checkpoint(checkpoint)


def kill_container(run):
    """A container of this run: the pool's labels name the process that owns it."""
    listed = subprocess.run(
        ["docker", "ps", "--quiet", "--filter", f"label={LABEL}"],
        capture_output=True,
        text=True,
        check=True,
    )
    for container in listed.stdout.split():
        labels = json.loads(
            subprocess.run(
                ["docker", "inspect", "--format", "{{json .Config.Labels}}", container],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        if labels.get(f"{LABEL}.pid") in run.process_ids():
            subprocess.run(["docker", "kill", container], capture_output=True, check=True)
            return
    pytest.fail("no container of the run")


def stop_engine(run):
    """An engine that hangs: the process is there and answers nothing."""
    os.kill(run.find(ENGINE), signal.SIGSTOP)


FAULTS = {
    "killed engine": (lambda run: run.kill(ENGINE), "rollout", ()),
    "hanging engine": (stop_engine, "rollout", ("rollout.stall_timeout_s=20",)),
    "killed verifier": (lambda run: run.kill(VERIFIER), "verification", ()),
    "killed container": (kill_container, None, ()),
    "killed learner rank": (lambda run: run.kill(RANK), "learner", ("save_steps=5",)),
}


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", FAULTS)
def test_the_quickstart_learns_through_a_fault(start, fault):
    inflict, stage, overrides = FAULTS[fault]
    run = start(*overrides)
    run.wait_for("step 12/")
    inflict(run)
    summary = run.finish()
    run.check_that_no_sample_is_lost_or_counted_twice(steps=40, group=8, groups=16)
    stages = {incident["stage"] for incident in summary["incidents"]}
    assert stages == ({stage} if stage else set()), summary["incidents"]
    for name, scores in summary["held_out"].items():
        gain = scores["pass@1_change"]
        assert gain["low"] > 0, (name, gain)


def fill(file):
    """Write until the disk is full."""
    with file.open("wb", buffering=0) as stream, contextlib.suppress(OSError):
        while stream.write(b"0" * 2**12):
            pass


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_disk_that_fills_up_costs_checkpoints_and_not_the_run(start, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        run = start("save_steps=5", folder=disk)
        run.wait_for("step 7/")
        filler = disk / "filler"
        fill(filler)
        run.wait_for("not written")
        filler.unlink()
        summary = run.finish()
        assert summary["complete"]
        stages = {incident["stage"] for incident in summary["incidents"]}
        assert "checkpoint" in stages
        assert stages <= {"checkpoint", "record"}
        newest = list_checkpoints(run.folder / "checkpoints")[-1]
        assert newest.name == "checkpoint-40"
        verify_checkpoint(newest)
    finally:
        subprocess.run(["umount", "--lazy", disk], capture_output=True, check=False)
