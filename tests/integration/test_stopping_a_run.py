"""Ctrl-C and kill -9 in the middle of a run: what is saved, and what is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from grpo.checkpoints import latest_checkpoint, read_state

START = [
    sys.executable,
    "-m",
    "grpo",
    "train",
    "configs/quickstart.yaml",
    "eval_before_train=false",
]


@pytest.fixture
def start(short, tmp_path):
    """Start a long run in a process group of its own, as a terminal does, and wait for a step."""
    started = []

    def _start(*arguments, after="step 1/"):
        process = subprocess.Popen(
            [*START, *short, "steps=500", "save_steps=0", f"output_dir={tmp_path}", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if after in line:
                break
        else:
            pytest.fail("the run ended by itself: " + "".join(lines))
        return process, lines

    yield _start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()


def leftovers(marker):
    """Processes that belong to the run: its children carry its environment."""
    found = []
    for process in psutil.process_iter(["name", "cmdline"]):
        try:
            if process.environ().get("VERIGRAD_TEST_RUN") == marker:
                found.append((process.pid, process.info["name"]))
        except (psutil.Error, OSError):
            continue
    return found


def wait_until_gone(marker, seconds=40):
    give_up = time.monotonic() + seconds
    while (left := leftovers(marker)) and time.monotonic() < give_up:
        time.sleep(0.5)
    return left


def labelled_containers():
    listed = subprocess.run(
        ["docker", "ps", "--all", "--quiet", "--filter", "label=verigrad"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(listed.stdout.split())


def test_ctrl_c_saves_a_checkpoint_and_leaves_nothing(start, tmp_path, monkeypatch):
    marker = f"{tmp_path}"
    monkeypatch.setenv("VERIGRAD_TEST_RUN", marker)
    containers = labelled_containers()
    process, lines = start()
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to every process of the command
    rest, _ = process.communicate(timeout=120)
    printed = "".join(lines) + rest
    assert process.returncode == 130, printed
    assert "--resume" in printed
    assert "Traceback" not in printed
    folder = tmp_path / "quickstart"
    checkpoint = latest_checkpoint(folder / "checkpoints", warn=pytest.fail)
    assert checkpoint is not None
    last_step = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])["step"]
    assert read_state(checkpoint)["step"] == last_step
    assert wait_until_gone(marker) == []
    assert labelled_containers() <= containers


@pytest.mark.long
def test_kill_9_leaves_no_process_and_no_container(start, tmp_path, monkeypatch):
    marker = f"{tmp_path}"
    monkeypatch.setenv("VERIGRAD_TEST_RUN", marker)
    containers = labelled_containers()
    process, _ = start()
    process.kill()
    process.wait()
    assert wait_until_gone(marker) == []
    assert labelled_containers() <= containers


def stop_engines(marker):
    """Have the run's engines hang."""
    for process in psutil.process_iter(["cmdline"]):
        try:
            command = process.info["cmdline"] or [""]
            if process.environ().get("VERIGRAD_TEST_RUN") == marker and command[0].startswith(
                "ray::EngineActor"
            ):
                process.suspend()
        except (psutil.Error, OSError):
            continue


@pytest.mark.long
@pytest.mark.parametrize(("max_staleness", "num_signals"), [(0, 1), (1, 1), (0, 2)])
def test_ctrl_c_does_not_wait_for_an_engine_that_hangs(
    start, tmp_path, monkeypatch, max_staleness, num_signals
):
    marker = f"{tmp_path}"
    monkeypatch.setenv("VERIGRAD_TEST_RUN", marker)
    process, _ = start(f"max_staleness={max_staleness}", "evaluation.data=[]", after="step 2/")
    stop_engines(marker)
    time.sleep(3)
    begun = time.monotonic()
    for _ in range(num_signals):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.5)
    rest, _ = process.communicate(timeout=120)
    assert time.monotonic() - begun < 40, "the stall timeout is ten minutes"
    if num_signals == 1:
        assert process.returncode == 130, rest
        assert list((tmp_path / "quickstart" / "checkpoints").glob("checkpoint-*"))
    assert wait_until_gone(marker) == []
