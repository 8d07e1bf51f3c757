"""Steps of TRL's GRPOTrainer with vLLM colocated; `benchmarks/end_to_end.py` runs it.

Prints one JSON object: wall and CPU seconds of each step.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

# What the pool's engines have too: one process, no compilation, threads that sleep while they wait.
os.environ |= {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "HF_HUB_OFFLINE": "1",
    "TRL_EXPERIMENTAL_SILENCE": "1",
}


def main() -> None:
    """Train, and print the seconds of each step."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("model", "data"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("steps", "prompts", "generations", "tokens"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--learning-rate", type=float, required=True)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    import vllm._custom_ops
    from datasets import load_dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer  # pyright: ignore[reportMissingImports]
    from trl.generation import vllm_generation  # pyright: ignore[reportMissingImports]

    # Otherwise vLLM packs the weights for oneDNN, and TRL's push of them finds nothing to write to.
    vllm._custom_ops._supports_onednn = False  # noqa: SLF001 - vLLM has no option for it

    # It has no option for this either; graph capture on CPU takes minutes.
    vllm_generation.LLM = partial(vllm.LLM, enforce_eager=True)

    class Clock(TrainerCallback):
        """Notes the time at each step's end."""

        def __init__(self) -> None:
            self.marks: list[tuple[float, float]] = []

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.marks.append((time.perf_counter(), time.process_time()))

    def reward(completions: list[Any], answer: list[str], **_: Any) -> list[float]:
        texts = [completion[0]["content"] for completion in completions]
        return [float(f"boxed{{{a}}}" in text) for text, a in zip(texts, answer, strict=True)]

    clock = Clock()
    completions = args.prompts * args.generations
    trainer = GRPOTrainer(
        model=args.model,
        reward_funcs=reward,
        args=GRPOConfig(
            output_dir=str(Path(args.model) / "unused"),
            use_cpu=True,
            bf16=False,
            max_steps=args.steps,
            per_device_train_batch_size=completions,
            gradient_accumulation_steps=1,
            num_generations=args.generations,
            max_completion_length=args.tokens,
            learning_rate=args.learning_rate,
            lr_scheduler_type="constant",
            beta=0.0,
            loss_type="dapo",
            temperature=1.0,
            gradient_checkpointing=False,
            use_vllm=True,
            vllm_mode="colocate",
            vllm_max_model_length=128,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=load_dataset("json", data_files=args.data, split="train"),
        callbacks=[clock],
    )
    out, sys.stdout = sys.stdout, sys.stderr
    trainer.train()
    rewards = [row["reward"] for row in trainer.state.log_history if "reward" in row]
    marks = clock.marks
    steps = [
        {"wall": after[0] - before[0], "cpu": after[1] - before[1]}
        for before, after in itertools.pairwise(marks)
    ]
    json.dump({"steps": steps, "rewards": rewards}, out)


if __name__ == "__main__":
    main()
