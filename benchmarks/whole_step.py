"""A whole step of training: sampling, verifying, learning and pushing, timed over all processes."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a step does, for either trainer.

    Attributes:
        shape: A key of `benchmarks.shapes.SHAPES`.
        beta: Weight of the KL term.
        accumulation: Micro-batches of a step; only TRL is told.
        checkpointing: Whether activations are made again in the backward pass; only TRL is told.
        groups: Prompts.
        members: Completions of each.
        length: Tokens of each.
        warmup: Steps before those that are timed.
        steps: Steps that are timed.
        threads: Of each process.
    """

    shape: str
    beta: float
    accumulation: int
    checkpointing: bool
    groups: int = 16
    members: int = 8
    length: int = 32
    warmup: int = 2
    steps: int = 6
    threads: int = 2

    @property
    def completions(self) -> int:
        """Completions of a step."""
        return self.groups * self.members


def make_prompts() -> list[str]:
    """Prompts of one length."""
    return [f"{a}+{b}=" for a in range(10) for b in range(10)] * 10


def has_even_length(completion: str, answer: str = "") -> float:  # noqa: ARG001 - no problem has one
    """A reward that random completions get about half of the time."""
    return float(len(completion) % 2 == 0)


def time_verigrad(model: Path, folder: Path, job: Job) -> Mapping[str, float]:
    """Train, and find the CPU seconds of all processes and the wall seconds of a step."""
    folder.mkdir()
    (folder / "reward.py").write_text(inspect.getsource(has_even_length), encoding="utf-8")
    rows = [json.dumps({"prompt": text, "answer": "-"}) + "\n" for text in make_prompts()]
    (folder / "rows.jsonl").write_text("".join(rows), encoding="utf-8")
    options = {
        "run_name": "step",
        "output_dir": str(folder),
        "model": str(model),
        "data": {
            "path": str(folder / "rows.jsonl"),
            "verifier": f"{folder}/reward.py:has_even_length",
        },
        "steps": job.warmup + job.steps,
        "save_steps": 0,
        "prompts_per_step": job.groups,
        "num_generations": job.members,
        "max_prompt_length": 8,
        "max_completion_length": job.length,
        "max_tokens_per_microbatch": job.completions * (job.length + 4),
        "loss_type": "dapo",
        "dynamic_sampling": "off",
        "beta": job.beta,
        "learning_rate": 1e-4,
        "verification": {"num_workers": 1},
        "rollout": {"num_threads": job.threads},
        "learner": {"num_threads": job.threads},
    }
    config = folder / "config.yaml"
    config.write_text(json.dumps(options), encoding="utf-8")  # JSON is YAML
    with (folder / "log").open("w", encoding="utf-8") as log:
        run = psutil.Popen(
            [sys.executable, "-m", "grpo", "train", str(config)],
            cwd=ROOT, stdout=log, stderr=log, env=_environment(ROOT),
        )  # fmt: skip
        marks = _watch(run, folder / "step" / "metrics.jsonl")
    if run.returncode:
        sys.exit((folder / "log").read_text(encoding="utf-8"))
    (cpu, wall), (last_cpu, last_wall) = marks[job.warmup - 1], marks[-1]
    return {"cpu": (last_cpu - cpu) / job.steps, "wall": (last_wall - wall) / job.steps}


def time_trl(model: Path, job: Job, site: Path) -> Mapping[str, float]:
    """Have TRL train in a process of its own."""
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "trl_step.py", model, json.dumps(asdict(job))],
        env=_environment(site), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def _watch(run: psutil.Popen, metrics: Path) -> list[tuple[float, float]]:
    """CPU seconds of a run's processes, and the wall clock, at the end of each step."""
    marks: list[tuple[float, float]] = []
    while run.poll() is None:
        done = metrics.read_bytes().count(b"\n") if metrics.exists() else 0
        marks += [(_sum_cpu_seconds(run), time.perf_counter())] * (done - len(marks))
        time.sleep(0.02)
    return marks


def _sum_cpu_seconds(run: psutil.Process) -> float:
    total = 0.0
    for process in [run, *run.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def _environment(packages: Path) -> dict[str, str]:
    return os.environ | {
        "PYTHONPATH": str(packages),
        # Threads that wait must not be counted as work, on either side.
        "OMP_WAIT_POLICY": "PASSIVE",
        "HF_HUB_OFFLINE": "1",
    }
