"""Whole runs through the command line, as a user starts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# A run that is short, but whole: both verifiers, adaptive KL and entropy, evaluations, checkpoints,
# and micro-batches so small that the learner begins before all is sampled.
SHORT = (
    "steps=4",
    "save_steps=2",
    "prompts_per_step=4",
    "num_generations=4",
    "max_tokens_per_microbatch=128",
    "learner.packing=on",
    "beta=0.04",
    "kl_target=0.05",
    "entropy_target=0.5",
    "evaluation.data.0.limit=8",
    "evaluation.data.1.limit=8",
    "evaluation.num_samples=2",
    "evaluation.k=[1,2]",
)


@dataclass(frozen=True)
class Run:
    """A finished command."""

    returncode: int
    stdout: str
    stderr: str
    folder: Path

    @property
    def metrics(self):
        lines = (self.folder / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def rollouts(self, step):
        lines = (self.folder / f"rollouts/step-{step:06d}.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


def run_verigrad(*arguments, cwd=ROOT, timeout=580, env=None):
    """Run the command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "grpo", *map(str, arguments)],
        cwd=cwd,
        env=os.environ | (env or {}),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def run_training(
    output_dir, *arguments, config="configs/quickstart.yaml", name="quickstart", **options
):
    """Train, and return the run."""
    done = run_verigrad("train", config, f"output_dir={output_dir}", *arguments, **options)
    return Run(done.returncode, done.stdout, done.stderr, Path(output_dir) / name)


@pytest.fixture(scope="session")
def verigrad():
    """Runs any command of `verigrad`."""
    return run_verigrad


@pytest.fixture(scope="session")
def train():
    """Runs `verigrad train`."""
    return run_training


@pytest.fixture(scope="session")
def short():
    """The overrides that make a run short."""
    return SHORT


@pytest.fixture(scope="session")
def short_run(tmp_path_factory):
    """The short run of the quickstart's configuration."""
    run = run_training(tmp_path_factory.mktemp("runs"), *SHORT, "--json")
    assert run.returncode == 0, run.stderr
    return run
