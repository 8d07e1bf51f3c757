"""A user's own function as the verifier of a training run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"
CONFIG = """
run_name: mine
model: embedded:quickstart
data: {path: rows.jsonl, verifier: "my_checks.py:close_enough"}
steps: 2
prompts_per_step: 4
num_generations: 4
max_prompt_length: 32
max_completion_length: 24
verification: {num_workers: 1}
"""


def readme_file(name):
    """A file that the README shows."""
    pattern = rf"```python\n(# {re.escape(name)}\n.*?)```"
    (block,) = re.findall(pattern, README.read_text(), re.DOTALL)
    return block


@pytest.fixture
def folder(tmp_path):
    """What a user has: a function, rows and a configuration."""
    for name in ("my_checks.py", "train_mine.py"):
        (tmp_path / name).write_text(readme_file(name))
    rows = [{"prompt": f"{a}+{a + 3}=", "answer": str(2 * a + 3)} for a in range(11, 40)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "run.yaml").write_text(CONFIG)
    return tmp_path


def test_the_readmes_verifier_is_checked_and_judges(verigrad, folder):
    checked = verigrad("train", "run.yaml", "--dry-run", cwd=folder)
    assert checked.returncode == 0, checked.stderr
    completions = [
        {"completion": "so it is 25.1", "answer": "25"},
        {"completion": "so it is 26", "answer": "25"},
        {"completion": "so it is unknown", "answer": "25"},
    ]
    (folder / "done.jsonl").write_text("".join(json.dumps(row) + "\n" for row in completions))
    judged = verigrad(
        "verify", "done.jsonl", "--verifier", "my_checks.py:close_enough", "--json", cwd=folder
    )
    assert judged.returncode == 0, judged.stderr
    assert [json.loads(line)["reward"] for line in judged.stdout.splitlines()] == [1.0, 0.0, 0.0]


@pytest.mark.long
def test_the_readmes_script_trains_with_its_verifier(folder):
    done = subprocess.run(
        [sys.executable, "train_mine.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    directory, complete = done.stdout.splitlines()[-1].split()
    assert complete == "True"
    for step in (1, 2):
        file = folder / directory / f"rollouts/step-{step:06d}.jsonl"
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        assert {row["verifier"] for row in rows} == {"my_checks:close_enough@1"}
        assert all(row["reward"] in (0.0, 1.0) for row in rows)
