"""An evaluation that is killed and interrupted ends with the result of one that was not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

# So few completions at a time that there is a middle to interrupt.
ARGUMENTS = (
    "eval",
    "configs/quickstart.yaml",
    "evaluation.data=[{path: datasets/quickstart_maths/heldout.jsonl, name: maths, limit: 60}]",
    "rollout.max_num_seqs=2",
)


def count_problems(folder):
    file = folder / "samples.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return len({json.loads(line)["problem_id"] for line in lines})


def interrupt(kind, folder, *, after, before=lambda _: None):
    """Start the evaluation, and end it when so many problems are done; what it printed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "grpo", *ARGUMENTS, f"--output={folder}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        while count_problems(folder) < after:
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.02)
        before(process)
        if kind is signal.SIGINT:
            os.killpg(process.pid, kind)  # a terminal sends it to every process of the command
        else:
            process.kill()
        printed, _ = process.communicate(timeout=120)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, printed


def read_samples(folder):
    rows = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    for row in rows:
        # Timing, and what another batch may round otherwise in its last digit.
        del row["verify_s"], row["logprobs"]
    return sorted(rows, key=lambda row: (row["problem_id"], row["member"]))


@pytest.mark.long
def test_kill_and_ctrl_c_change_nothing_in_the_result(verigrad, tmp_path):
    whole = verigrad(*ARGUMENTS, f"--output={tmp_path / 'whole'}", "--json")
    assert whole.returncode == 0, whole.stderr

    folder = tmp_path / "parts"
    code, printed = interrupt(signal.SIGKILL, folder, after=10)
    assert code == -signal.SIGKILL, printed
    kept = count_problems(folder)
    code, printed = interrupt(signal.SIGINT, folder, after=kept + 10)
    assert code == 130, printed
    assert "problems are done and kept in" in printed
    assert "Traceback" not in printed
    kept = count_problems(folder)
    assert 20 <= kept < 60

    last = verigrad(*ARGUMENTS, f"--output={folder}", "--json")
    assert last.returncode == 0, last.stderr
    assert f"{kept} of 60 problems are done" in last.stderr
    first, second = (json.loads(done.stdout) for done in (whole, last))
    for part in ("sets", "record"):
        assert first[part] == second[part]
    assert read_samples(folder) == read_samples(tmp_path / "whole")


@pytest.mark.long
def test_a_second_command_leaves_the_folder_to_the_first(verigrad, tmp_path):
    folder = tmp_path / "shared"
    second = None

    def start_another(first):
        nonlocal second
        first.send_signal(signal.SIGSTOP)  # so that it does not end meanwhile
        second = verigrad(*ARGUMENTS, f"--output={folder}")
        first.send_signal(signal.SIGCONT)

    code, printed = interrupt(signal.SIGINT, folder, after=1, before=start_another)
    assert code == 130, printed
    assert second is not None
    assert second.returncode == 2, second.stdout
    assert f"is at work in {folder}" in second.stderr
    assert not (tmp_path / "shared-2").exists()
