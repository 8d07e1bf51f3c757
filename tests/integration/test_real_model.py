"""SmolLM2-135M-Instruct on rows of GSM8K: a pretrained model, its chat template, real questions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONFIG = "configs/smollm2-135m-gsm8k-cpu.yaml"


@pytest.fixture(scope="module")
def model():
    """The model where the configuration looks for it, fetched once a checkout."""
    fetch = [sys.executable, "scripts/fetch_smollm2.py"]
    done = subprocess.run(fetch, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / "models/smollm2-135m-instruct"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_two_real_steps_on_real_rows(model, data_dir, train, tmp_path):
    run = train(
        tmp_path,
        f"model={model}",
        f"data.path={data_dir / 'gsm8k/train.jsonl'}",
        "data.limit=64",
        "steps=2",
        "prompts_per_step=2",
        "num_generations=2",
        "max_completion_length=48",
        "beta=0.001",
        "dynamic_sampling=off",
        config=CONFIG,
        name="smollm2-135m-gsm8k",
        timeout=880,
    )
    assert run.returncode == 0, run.stderr
    for row in run.metrics:
        assert 0 <= row["completions/clipped_ratio"] <= 1
        assert 0 <= row["reward"] <= 1
        assert row["sampling/sampling_logp_difference/mean"] < 1e-3
        assert row["push/probe_logprob_difference"] < 1e-3
    assert run.metrics[0]["kl"] == pytest.approx(0.0, abs=1e-5)
    rollouts = run.rollouts(1)
    assert len(rollouts) == 4
    assert all(row["reference"].replace(",", "").lstrip("-").isdigit() for row in rollouts)
    assert len({row["text"] for row in rollouts}) > 1
