"""Steps of TRL's GRPOTrainer on a CPU, timed; `benchmarks/learner.py` starts it.

    PYTHONPATH=FOLDER_WITH_TRL python benchmarks/trl_step.py MODEL JOB

JOB is a JSON object with the keys of `benchmarks.whole_step.Job`. Prints the CPU seconds and the
wall seconds of a step.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

# This folder has a verifiers.py too.
sys.path[0] = str(Path(__file__).resolve().parents[1])

import torch  # noqa: E402
from datasets import Dataset  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback  # noqa: E402

from benchmarks.whole_step import Job, has_even_length, make_prompts  # noqa: E402


class Clock(TrainerCallback):
    """Notes the CPU and the wall clock at the end of every step."""

    def __init__(self) -> None:
        self.marks: list[tuple[float, float]] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """As transformers calls it."""
        self.marks.append((time.process_time(), time.perf_counter()))


def main() -> None:
    """Train, and print what a step took."""
    from trl import GRPOConfig, GRPOTrainer  # pyright: ignore[reportMissingImports]

    warnings.simplefilter("ignore")
    model, job = sys.argv[1], Job(**json.loads(sys.argv[2]))
    torch.set_num_threads(job.threads)
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32),
            processing_class=AutoTokenizer.from_pretrained(model),
            reward_funcs=reward,
            args=GRPOConfig(
                output_dir=folder,
                per_device_train_batch_size=job.completions // job.accumulation,
                gradient_accumulation_steps=job.accumulation,
                gradient_checkpointing=job.checkpointing,
                num_generations=job.members,
                max_completion_length=job.length,
                max_steps=job.warmup + job.steps,
                learning_rate=1e-4,
                lr_scheduler_type="constant",
                loss_type="dapo",
                epsilon_high=0.28,
                beta=job.beta,
                bf16=False,
                use_cpu=True,
                report_to=[],
                save_strategy="no",
                disable_tqdm=True,
                seed=0,
            ),
            train_dataset=Dataset.from_list([{"prompt": text} for text in make_prompts()]),
            callbacks=[clock],
        )
        trainer.train()
    lengths = {row["completions/mean_length"] for row in trainer.state.log_history[:-1]}
    assert lengths <= {job.length}, f"completions ended early: {lengths}"
    (cpu, wall), (last_cpu, last_wall) = clock.marks[job.warmup - 1], clock.marks[-1]
    print(json.dumps({"cpu": (last_cpu - cpu) / job.steps, "wall": (last_wall - wall) / job.steps}))


def reward(completions: list[str], **_: Any) -> list[float]:
    """As TRL calls a reward function."""
    return [has_even_length(completion) for completion in completions]


if __name__ == "__main__":
    main()
