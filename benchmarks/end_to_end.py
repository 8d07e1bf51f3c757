"""Whole training steps: sampled ahead and in turns, with verdicts beside, and beside TRL's.

    .venv/bin/python benchmarks/end_to_end.py staleness
    .venv/bin/python benchmarks/end_to_end.py verification
    .venv/bin/python benchmarks/end_to_end.py trl --trl-python path/to/venv/bin/python

Every run is the command itself, in processes of its own, its clock started after some steps.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
# This folder has a verifiers.py too.
sys.path[0] = str(ROOT)

from grpo.paths import find_model  # noqa: E402

ENGINE, RANK = "ray::EngineActor", "ray::LearnerRank"
# Steps before the clock starts: allocators and thread pools warm up, and sampling ahead fills.
WARM_UP = 4
PROMPTS, GENERATIONS, TOKENS, LEARNING_RATE = 16, 8, 32, 2e-4
MATHS = "datasets/quickstart_maths/train.jsonl"
HELD_OUT = "datasets/quickstart_maths/heldout.jsonl"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Seconds of a mean step, and what the run said of itself at its end."""

    wall: float
    cpu: float
    summary: dict[str, Any]
    rows: list[dict[str, Any]]


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("staleness", "verification", "trl"))
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--trl-python", help="of an environment that has TRL and vLLM")
    args = parser.parse_args()
    if args.part == "trl":
        if not args.trl_python:
            parser.error("--trl-python is missing: a Python that can import trl and vllm")
        compare_with_trl(args.trl_python, args.pairs, args.steps)
    elif args.part == "verification":
        show_verification(args.steps)
    else:
        compare_staleness(args.pairs, args.steps)


def compare_staleness(pairs: int, steps: int) -> None:
    """`max_staleness` 1 beside 0: engine on one core, learner on another, of equal work."""
    runs: dict[int, list[Measured]] = {0: [], 1: []}
    for index in range(pairs):
        for staleness in (0, 1) if index % 2 else (1, 0):
            runs[staleness].append(
                train(
                    steps,
                    f"max_staleness={staleness}",
                    f"seed={index}",
                    f"data=[{{path: {MATHS}, name: maths}}]",
                    f"evaluation.data=[{{path: {HELD_OUT}, name: sums}}]",
                    "save_steps=0",
                    # Large enough that a step is an update and the completions for it, of about
                    # the same length, and little else.
                    "prompts_per_step=48",
                    "rollout.num_threads=1",
                    "learner.num_threads=1",
                    pin={ENGINE: 0, RANK: 1},
                )
            )
    print(
        f"\nSums, {steps} steps of 48 prompts, engine and learner on a core each, {pairs} pairs of "
        "runs"
    )
    print("| max_staleness | steps/hour | engine works | learner works | held-out pass@1 |")
    print("| ---: | ---: | ---: | ---: | --- |")
    for staleness, found in runs.items():
        rate = statistics.median(3600 / run.wall for run in found)
        shares = [
            statistics.median(work_share(run.summary, worker) for run in found)
            for worker in ("engines", "learner")
        ]
        scores = "; ".join(show_scores(run.summary) for run in found)
        print(f"| {staleness} | {rate:.0f} | {shares[0]:.0%} | {shares[1]:.0%} | {scores} |")
    ratios = [turns.wall / ahead.wall for turns, ahead in zip(runs[0], runs[1], strict=True)]
    print(f"\nSteps/hour, 1 by 0: {show_ratios(ratios)}")


def show_verification(steps: int) -> None:
    """How much of the verdicts' time a step waits for: code and maths of the quickstart."""
    rows = train(steps, "evaluation.data=[]", "save_steps=0").rows[WARM_UP:]
    spent, tail, whole = (
        statistics.fmean(row[name] for row in rows)
        for name in ("verification/seconds", "time/verification_tail", "time/step")
    )
    print(f"\nQuickstart, {len(rows)} steps of {PROMPTS * GENERATIONS} verdicts, seconds a step")
    print("| whole step | all verdicts | waited for the last | hidden |")
    print("| ---: | ---: | ---: | ---: |")
    print(f"| {whole:.2f} | {spent:.3f} | {tail:.3f} | {1 - tail / spent:.0%} |")


def compare_with_trl(python: str, pairs: int, steps: int) -> None:
    """A step here and a step of TRL 1.16 with vLLM colocated: same model, data, batch, update."""
    same = (
        f"data=[{{path: {MATHS}, name: maths}}]",
        "evaluation.data=[]",
        "save_steps=0",
        # As there: groups without a signal stay in the batch.
        "dynamic_sampling=off",
        "warmup_steps=0",
    )
    ours: list[Measured] = []
    ahead: list[Measured] = []
    theirs: list[Measured] = []
    for _ in range(pairs):
        ours.append(train(steps, *same))
        theirs.append(train_with_trl(python, steps))
        ahead.append(train(steps, *same, "max_staleness=1"))
    print(
        f"\nOne step: {PROMPTS} prompts, {GENERATIONS} completions of at most {TOKENS} tokens, "
        f"{pairs} pairs of runs"
    )
    print("| | wall seconds | CPU seconds |\n| --- | ---: | ---: |")
    sides = (("verigrad", ours), ("verigrad, max_staleness 1", ahead), ("TRL", theirs))
    for name, found in sides:
        wall, cpu = (statistics.median(getattr(r, kind) for r in found) for kind in ("wall", "cpu"))
        print(f"| {name} | {wall:.2f} | {cpu:.2f} |")
    for name, found in sides[:2]:
        cells = [
            show_ratios([getattr(t, k) / getattr(o, k) for o, t in zip(found, theirs, strict=True)])
            for k in ("wall", "cpu")
        ]
        print(f"| TRL by {name} | {cells[0]} | {cells[1]} |")


def train(steps: int, *overrides: str, pin: dict[str, int] | None = None) -> Measured:
    """One run of the command, with its mean step after the warm-up."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "grpo", "train", "configs/quickstart.yaml"),
                *(f"output_dir={folder}", f"steps={steps}", f"prompts_per_step={PROMPTS}"),
                *(f"num_generations={GENERATIONS}", f"max_completion_length={TOKENS}"),
                *(f"learning_rate={LEARNING_RATE}", *overrides),
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        begin = end = (0.0, 0.0)
        for line in process.stdout:
            if pin and line.startswith("step 1/"):
                pin_processes(process.pid, pin)
            if line.startswith(f"step {WARM_UP}/"):
                begin = read_clocks(process.pid)
            if line.startswith(f"step {steps}/"):
                end = read_clocks(process.pid)
        assert process.wait() == 0, "the run failed"
        done = Path(folder) / "quickstart"
        summary = json.loads((done / "summary.json").read_text())
        rows = [json.loads(line) for line in (done / "metrics.jsonl").read_text().splitlines()]
    counted = steps - WARM_UP
    return Measured(
        wall=(end[0] - begin[0]) / counted,
        cpu=(end[1] - begin[1]) / counted,
        summary=summary,
        rows=rows,
    )


def train_with_trl(python: str, steps: int) -> Measured:
    """The same in TRL."""
    with tempfile.TemporaryDirectory() as folder:
        model = shutil.copytree(find_model("embedded:quickstart"), Path(folder) / "model")
        sizes = {"steps": steps, "prompts": PROMPTS, "generations": GENERATIONS, "tokens": TOKENS}
        done = subprocess.run(
            [
                *(python, str(ROOT / "benchmarks" / "trl_colocated.py"), "--model", str(model)),
                *("--data", str(ROOT / MATHS), "--learning-rate", str(LEARNING_RATE)),
                *(word for name, value in sizes.items() for word in (f"--{name}", str(value))),
            ],
            env=os.environ | {"OMP_NUM_THREADS": str(os.cpu_count())},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    counted = report["steps"][WARM_UP - 1 :]
    wall, cpu = (statistics.fmean(step[kind] for step in counted) for kind in ("wall", "cpu"))
    return Measured(wall=wall, cpu=cpu, summary=report, rows=[])


def find_processes(parent: int) -> list[psutil.Process]:
    """A process and all that it started; Ray's workers are among them."""
    process = psutil.Process(parent)
    return [process, *process.children(recursive=True)]


def read_clocks(parent: int) -> tuple[float, float]:
    """The wall clock, and the CPU seconds of all processes of a run."""
    return time.perf_counter(), sum(map(read_cpu_seconds, find_processes(parent)))


def read_cpu_seconds(process: psutil.Process) -> float:
    """CPU seconds of a process and of its children that have ended."""
    try:
        return sum(process.cpu_times()[:4])
    except psutil.NoSuchProcess:
        return 0.0


def pin_processes(parent: int, cores: dict[str, int]) -> None:
    """Keep each kind of process on one core, all of its threads."""
    for process in find_processes(parent):
        for title, core in cores.items():
            if " ".join(process.cmdline()).startswith(title):
                command = ["taskset", "-acp", str(core), str(process.pid)]
                subprocess.run(command, check=True, capture_output=True)


def work_share(summary: dict[str, Any], worker: str) -> float:
    """Share of the steps' time in which a worker worked."""
    row = summary["waits"][worker]
    return row["worked"] / sum(row.values())


def show_scores(summary: dict[str, Any]) -> str:
    """Held-out pass@1 with its interval, by set."""

    def found(score: dict[str, Any]) -> dict[str, float]:
        return score["after"]["pass@1"]

    return ", ".join(
        f"{name} {found(s)['value']:.2f} [{found(s)['low']:.2f}, {found(s)['high']:.2f}]"
        for name, s in summary["held_out"].items()
    )


def show_ratios(ratios: Sequence[float]) -> str:
    """Median and extremes."""
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


if __name__ == "__main__":
    main()
