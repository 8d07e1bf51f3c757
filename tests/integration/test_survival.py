"""Parts that die or hang in the middle of a run, which goes on and loses no sample."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time

import psutil
import pytest

from grpo.checkpoints import list_checkpoints, verify_checkpoint
from sandbox.owner import LABEL
from tests.engines import OwnEngine
from tests.followed_run import FollowedRun

ENGINE, VERIFIER, RANK = "ray::EngineActor", "ray::JudgeActor", "ray::LearnerRank"


class FaultyRun(FollowedRun):
    """A followed run whose processes can be found, by a mark in their environment."""

    def __init__(self, folder, *arguments, environment=None):
        self.marker = str(folder)
        mark = {"VERIGRAD_TEST_RUN": self.marker}
        super().__init__(folder, *arguments, environment=mark | (environment or {}))

    def find(self, title):
        """The processes of the run's actors of a kind."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            try:
                command = process.info["cmdline"] or [""]
                if command[0].startswith(title) and self.marker == process.environ().get(
                    "VERIGRAD_TEST_RUN"
                ):
                    found.append(process.pid)
            except psutil.Error:
                continue
        return found or pytest.fail(f"no process {title}")

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

    def send(self, title, kind):
        for process_id in self.find(title):
            os.kill(process_id, kind)

    def kill(self, title):
        self.send(title, signal.SIGKILL)

    def check_that_no_sample_is_lost_or_counted_twice(self, steps, group, groups, unverified=0):
        """Every step is there once, and every step has each member of each group once."""
        rows = (self.folder / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(row)["step"] for row in rows] == list(range(1, steps + 1))
        unknown = 0
        for step in range(1, steps + 1):
            file = self.folder / f"rollouts/step-{step:06d}.jsonl"
            rollouts = [json.loads(line) for line in file.read_text().splitlines()]
            assert len(rollouts) == group * groups
            assert len({row["seed"] for row in rollouts}) == len(rollouts)
            unknown += sum(row["status"] in {"error", "bad_gold"} for row in rollouts)
        assert unknown == unverified


@pytest.fixture
def start(tmp_path):
    runs = []

    def _start(*arguments, folder=tmp_path, environment=None):
        runs.append(FaultyRun(folder, *arguments, environment=environment))
        return runs[-1]

    yield _start
    for run in runs:
        run.stop()


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


def docker_command(*arguments, host):
    return subprocess.run(
        ["docker", "--host", host, *arguments], capture_output=True, text=True, check=True
    ).stdout


def kill_container(run, engine):
    """A container of this run: the pool's labels name the process that owns it."""
    label = f"label={LABEL}"
    for container in docker_command("ps", "--quiet", "--filter", label, host=engine.url).split():
        owner = f'{{{{index .Config.Labels "{LABEL}.pid"}}}}'
        shown = docker_command("inspect", "--format", owner, container, host=engine.url)
        if shown.strip() in run.process_ids():
            docker_command("kill", container, host=engine.url)
            return
    pytest.fail("no container of the run")


def check_that_it_learned(summary):
    for name, scores in summary["held_out"].items():
        gain = scores["pass@1_change"]
        assert gain["low"] > 0, (name, gain)


def list_actions(summary):
    """What was done about what, in order, each once."""
    found = [(incident["stage"], incident["action"]) for incident in summary["incidents"]]
    return list(dict.fromkeys(found))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_quickstart_learns_while_its_parts_are_killed(start, tmp_path):
    """`kill -9` of an engine, the verifiers, a container, the Docker daemon and the learner."""
    with OwnEngine(tmp_path) as engine:
        engine.load_image()
        run = start("save_steps=5", environment={"DOCKER_HOST": engine.url})
        run.wait_for("step 3/")
        run.kill(ENGINE)
        run.wait_for("step 8/")
        run.kill(VERIFIER)
        run.wait_for("step 12/")
        kill_container(run, engine)
        run.wait_for("step 16/")
        engine.stop(signal.SIGKILL)
        time.sleep(3)
        engine.start()
        run.wait_for("step 22/")
        run.kill(RANK)
        summary = run.finish()
    run.check_that_no_sample_is_lost_or_counted_twice(steps=40, group=8, groups=16)
    assert list_actions(summary) == [
        ("rollout", "restarted"),
        ("verification", "restarted"),
        ("learner", "restarted from step 20"),
    ]
    assert summary["not_verified"] == {}
    check_that_it_learned(summary)


SLEEPER = """
from pathlib import Path
import time

def check(completion, answer):
    flag, mine = Path({flag!r}), answer + " " + completion
    if flag.exists():
        if not flag.read_text():
            flag.write_text(mine)
        while flag.read_text() == mine:
            time.sleep(1)
    return f"boxed{{{{{{answer}}}}}}" in completion
"""


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_quickstart_learns_while_its_parts_hang_and_the_disk_is_full(start, tmp_path):
    """An engine and the verifier actors stop, a verifier sleeps for ever, checkpoints fail."""
    flag = tmp_path / "sleep"
    (tmp_path / "sleeper.py").write_text(SLEEPER.format(flag=str(flag)))
    run = start(
        "save_steps=5",
        "max_staleness=1",
        "rollout.stall_timeout_s=20",
        "verification.stall_timeout_s=30",
        "data.0.columns={verifier: nowhere}",
        f"data.0.verifier={tmp_path}/sleeper.py:check",
        "data.0.verifier_options={wall_limit_s: 2}",
    )
    run.wait_for("step 1/")
    disk = run.folder / "checkpoints"
    disk.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", disk]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        run.wait_for("step 3/")
        run.send(ENGINE, signal.SIGSTOP)
        run.wait_for("step 8/")
        flag.touch()
        run.wait_for("step 12/")
        run.send(VERIFIER, signal.SIGSTOP)
        run.wait_for("step 17/")
        fill(disk / "filler")
        run.wait_for("not written")
        (disk / "filler").unlink()
        summary = run.finish()
        newest = list_checkpoints(disk)[-1]
        assert newest.name == "checkpoint-40"
        verify_checkpoint(newest)
    finally:
        subprocess.run(["umount", "--lazy", disk], capture_output=True, check=False)
    # One completion, which its group may have more than once.
    unverified = summary["not_verified"]["stalled"]
    assert summary["not_verified"] == {"stalled": unverified}
    run.check_that_no_sample_is_lost_or_counted_twice(
        steps=40, group=8, groups=16, unverified=unverified
    )
    stages = dict.fromkeys(stage for stage, _ in list_actions(summary))
    assert list(stages) == ["rollout", "verification", "checkpoint"]
    assert f"Not verified, and so in no update: {unverified} completions" in "".join(run.lines)
    check_that_it_learned(summary)


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
