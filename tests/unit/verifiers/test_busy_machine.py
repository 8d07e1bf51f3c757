"""Verdicts do not depend on how busy the machine is: limits are CPU time, not wall time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from verifiers.judge import Judge
from verifiers.problem import Problem, Submission
from verifiers.verdict import Status

PAIRS = Path(__file__).with_name("math_pairs.jsonl")
ROWS = [json.loads(line) for line in PAIRS.read_text(encoding="utf-8").splitlines()]
# One that is judged in a worker process, against its clock.
IN_WORKER = {
    "gold": r"\frac{\pi^2}{6}",
    "answer": r"\frac{\pi^2}{6} + \sin^2(1) + \cos^2(1) - 1",
    "right": True,
}


@pytest.fixture
def busy_machine():
    """Three spinning processes for each core."""
    spin = [sys.executable, "-c", "while True: pass"]
    hogs = [subprocess.Popen(spin) for _ in range(3 * (os.cpu_count() or 1))]
    yield
    for hog in hogs:
        hog.kill()
        hog.wait()


@pytest.mark.usefixtures("busy_machine")
def test_mathematical_verdicts_on_a_busy_machine():
    judge = Judge({"math": {}})
    wrong = []
    for row in [*ROWS[::10], IN_WORKER]:
        problem = Problem(
            id="0", prompt="", verifier="math", reference=row["gold"], source=PAIRS.name
        )
        verdict = judge.verify(
            Submission(problem=problem, completion=f"\\boxed{{{row['answer']}}}")
        )
        if (verdict.status is Status.CORRECT) != row["right"]:
            wrong.append((row, verdict))
    judge.close()
    assert wrong == []
