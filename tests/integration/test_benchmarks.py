"""The benchmarks run, and what they compare is labelled rightly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long
def test_the_table_of_verifiers(data_dir):
    command = [sys.executable, "benchmarks/verifiers.py", "--data", str(data_dir)]
    done = subprocess.run(
        [*command, "--problems", "2", "--pairs", "8"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    rows = [
        line.strip("| ").split(" | ") for line in done.stdout.splitlines() if "formulas" in line
    ]
    assert len(rows) == 2
    for title, number, *_, wrong, _ in rows:
        assert (int(number) > 2, int(wrong)) == (True, 0), title


@pytest.mark.long
def test_the_table_of_evaluation(data_dir):
    command = [sys.executable, "benchmarks/evaluate.py", "--data", str(data_dir)]
    done = subprocess.run(
        [*command, "--problems", "8"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()[2:]]
    assert [row[0] for row in rows] == [
        "GSM8K: 32 of 8 problems",
        "HumanEval: 8 of 8 problems",
    ]
    assert all(int(row[-1]) == 0 for row in rows)


@pytest.mark.long
def test_the_cost_of_pushing_adapters_alone():
    done = subprocess.run(
        [sys.executable, "benchmarks/adapter_push.py", "--repeats", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    rows = dict(line.rsplit(maxsplit=1) for line in done.stdout.splitlines())
    assert float(rows["adapter: push, MB"]) < 0.05 * float(rows["merged: push, MB"])
    for name in ("merged", "adapter"):
        for number in (8, 64):
            assert float(rows[f"{name}: tokens/s, {number} at a time"]) > 0


@pytest.mark.long
def test_the_cost_of_a_push():
    done = subprocess.run(
        [sys.executable, "benchmarks/weight_push.py", "--repeats", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in ("shared_memory", "object", "gloo"):
        assert f"{name:14} " in done.stdout
    assert "plain push / push by shared_memory" in done.stdout
    assert "engine pause / packing alone" in done.stdout


def test_the_cost_of_long_rollouts():
    done = subprocess.run(
        [sys.executable, "benchmarks/long_rollouts.py", "--completions", "8", "--tokens", "500"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()]
    ratios = {row[0]: row[-1] for row in rows}
    assert float(ratios["rollouts between processes"]) > 1
    assert float(ratios["compressed"]) > float(ratios["rollouts on disk"]) > 1


@pytest.mark.parametrize("script", ["verifiers.py", "sandbox.py", "evaluate.py"])
def test_a_folder_that_is_not_there_is_named(script):
    done = subprocess.run(
        [sys.executable, f"benchmarks/{script}", "--data", "nowhere"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "there is no folder nowhere" in done.stderr
