"""A fault in pushing or sampling is named by a check within one step, on policy and ahead of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# The engine has the fault from the push of step 2 on.
FAULTS = {
    "skipped push": ("weights_landed", 1),
    "corrupted bucket": ("checksum", 1),
    "stale prefix cache": ("sampler_logprobs", 2),
    "wrong temperature": ("sampler_logprobs", 2),
}
# Few problems, so that each step visits prompts of the one before, which fill a block of the prefix
# cache; and steps that change much.
OVERRIDES = (
    "steps=6",
    "max_prompt_length=90",
    "prompts_per_step=4",
    "num_generations=4",
    "dynamic_sampling=off",
    "learning_rate=1e-3",
    "warmup_steps=0",
    "evaluation.data=[]",
)


VERIFIER = "def check(completion):\n    return len(completion) % 2 == 0\n"


def run(fault, folder, *overrides):
    rows = [{"prompt": "1+1=2 2+2=4 3+4=7 " * 3 + f"{n}+{n}=", "answer": "0"} for n in range(4)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "odd.py").write_text(VERIFIER)
    data = f"data=[{{path: {folder}/rows.jsonl, verifier: '{folder}/odd.py:check'}}]"
    command = [sys.executable, "tests/faulty_run.py", fault, "train", "configs/quickstart.yaml"]
    done = subprocess.run(
        [*command, f"output_dir={folder}", data, *OVERRIDES, *overrides],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    rows = (folder / "quickstart" / "metrics.jsonl").read_text().splitlines()
    return done, len(rows)


@pytest.mark.long
@pytest.mark.parametrize("max_staleness", [0, 1])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_within_one_step(tmp_path, fault, max_staleness):
    named, whole_steps = FAULTS[fault]
    done, num_steps = run(fault, tmp_path, f"max_staleness={max_staleness}")
    assert done.returncode == 1, done.stdout + done.stderr
    assert named in done.stderr
    assert num_steps == whole_steps


@pytest.mark.long
@pytest.mark.parametrize("fault", ["skipped push", "corrupted bucket", "stale prefix cache"])
def test_a_fault_in_pushing_adapters_alone_is_named_within_one_step(tmp_path, fault):
    named, whole_steps = FAULTS[fault]
    adapters = ("lora_r=8", "lora_push=adapter", "learning_rate=1e-2")
    done, num_steps = run(fault, tmp_path, *adapters)
    assert done.returncode == 1, done.stdout + done.stderr
    assert named in done.stderr
    assert num_steps == whole_steps


@pytest.mark.long
def test_one_damaged_push_is_sent_again_and_the_run_goes_on(tmp_path):
    done, num_steps = run("corrupted once", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert num_steps == 6
    summary = json.loads((tmp_path / "quickstart" / "summary.json").read_text())
    assert [incident["action"] for incident in summary["incidents"]] == ["sent again"]
