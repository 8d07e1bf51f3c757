#!/usr/bin/env python3
"""Train the quickstart's policy, `grpo/bundled/quickstart_policy/`, on careless demonstrations.

The policy comes to know the right way and the careless ways of both tasks, each with its
probability. It is trained until it converges: stopping early on careful demonstrations would give
the same pass rate and be a worse start, since a policy that lacks facts learns them slowly from
rewards, and one that has to prefer what it already knows learns in tens of steps.

The same arguments, versions and kind of machine give the same bytes. Problems come from
`datasets/quickstart_*/train.jsonl`; held-out ones are never seen.
"""

from __future__ import annotations

import os

# Before torch loads: spinning OpenMP threads are many times slower on a shared machine.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import json
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from quickstart_tasks import FAMILIES, Addition
from quickstart_tokenizer import END_ID, PAD_ID, build_tokenizer, encode_chat
from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

from grpo.seeding import seed_everything

ROOT = Path(__file__).resolve().parent.parent
MAX_LENGTH = 128
IGNORED = -100

Demonstrate = Callable[[random.Random], str]
"""Answers a problem as a careless pupil, differently each time."""
Problem = tuple[list[dict[str, str]], Demonstrate]


def build_model(tokenizer: Qwen2Tokenizer) -> Qwen2ForCausalLM:
    """Build the untrained policy: 0.6 million parameters, float32."""
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=4,  # a head size of 32, the smallest that vLLM's CPU attention supports
        num_key_value_heads=2,
        max_position_embeddings=MAX_LENGTH,
        tie_word_embeddings=True,
        eos_token_id=END_ID,
        pad_token_id=PAD_ID,
        bos_token_id=None,
    )
    return Qwen2ForCausalLM(config)


def load_problems(path: Path) -> list[Problem]:
    """Read a problem set's prompts and pair each with its pupil."""
    functions = {f.prompt: f for family in FAMILIES for f in family.functions()}
    problems: list[Problem] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        question = row["prompt"][-1]["content"]
        if row["verifier"] == "math":
            a, b = question.rstrip("=").split("+")
            pupil: Demonstrate = Addition(a=int(a), b=int(b)).careless
        else:
            pupil = functions[question].careless
        problems.append((row["prompt"], pupil))
    return problems


def collate(
    problems: Sequence[Problem], tokenizer: Qwen2Tokenizer, rng: random.Random
) -> tuple[torch.Tensor, torch.Tensor]:
    """Demonstrate each problem once.

    Returns:
        Token ids and labels, both [B, T], padded on the right; only the answer and its end carry
        labels.
    """
    rows: list[tuple[list[int], int]] = []
    for prompt, demonstrate in problems:
        question = encode_chat(tokenizer, prompt)
        answer = [*tokenizer.encode(demonstrate(rng)), END_ID]
        rows.append(([*question, *answer], len(question)))
    length = max(len(ids) for ids, _ in rows)
    ids_BT = torch.full((len(rows), length), PAD_ID)
    labels_BT = torch.full((len(rows), length), IGNORED)
    for i, (ids, num_question) in enumerate(rows):
        ids_BT[i, : len(ids)] = torch.tensor(ids)
        labels_BT[i, num_question : len(ids)] = torch.tensor(ids[num_question:])
    return ids_BT, labels_BT


def compute_learning_rate(step: int, *, num_steps: int, peak: float, warmup: int = 50) -> float:
    """Linear warm-up, then a cosine down to a twentieth of the peak; steps count from 1."""
    if step <= warmup:
        return peak * step / warmup
    progress = (step - warmup) / (num_steps - warmup)
    return peak * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * progress)))


def train(
    model: Qwen2ForCausalLM,
    tokenizer: Qwen2Tokenizer,
    problem_sets: Sequence[Sequence[Problem]],
    *,
    num_steps: int,
    batch_size: int,
    peak_lr: float,
    seed: int,
) -> float:
    """Imitate the demonstrations, every problem set with an equal share of each batch.

    Returns:
        The mean loss of the last tenth of the steps, in nats per answer token.
    """
    rng = random.Random(seed)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=peak_lr, betas=(0.9, 0.95), weight_decay=0.0
    )
    losses: list[float] = []
    started = time.monotonic()
    model.train()
    for step in range(1, num_steps + 1):
        share = batch_size // len(problem_sets)
        drawn = [p for problems in problem_sets for p in rng.sample(problems, share)]
        ids_BT, labels_BT = collate(drawn, tokenizer, rng)
        logits_BTV = model(input_ids=ids_BT).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(
            logits_BTV.flatten(0, 1), labels_BT[:, 1:].flatten(), ignore_index=IGNORED
        )
        for group in optimizer.param_groups:
            group["lr"] = compute_learning_rate(step, num_steps=num_steps, peak=peak_lr)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if step % 100 == 0:
            mean = sum(losses[-100:]) / 100
            print(f"step {step} loss {mean:.4f} {time.monotonic() - started:.0f} s", flush=True)
    tail = losses[-max(1, num_steps // 10) :]
    return sum(tail) / len(tail)


def write_policy(
    folder: Path,
    model: Qwen2ForCausalLM,
    tokenizer: Qwen2Tokenizer,
    figures: Mapping[str, Any],
) -> None:
    """Write the policy as `from_pretrained` and vLLM read it, and beside it how it was made."""
    model.generation_config = GenerationConfig(
        do_sample=True,
        temperature=1.0,
        top_k=0,  # transformers cuts to 50 unless told otherwise
        eos_token_id=END_ID,
        pad_token_id=PAD_ID,
    )
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)  # safetensors makes it private
    text = json.dumps(figures, indent=2) + "\n"
    (folder / "training.json").write_text(text, encoding="utf-8")


def make_policy(
    problems: Path, *, seed: int, num_steps: int, batch_size: int, peak_lr: float
) -> tuple[Qwen2ForCausalLM, Qwen2Tokenizer, float]:
    """Make the policy from nothing but a seed and the problem sets in a folder.

    Returns:
        The policy, its tokenizer, and the loss that `train` returns.
    """
    seed_everything(seed)
    tokenizer = build_tokenizer(max_length=MAX_LENGTH)
    model = build_model(tokenizer)
    names = ("quickstart_maths", "quickstart_code")
    loss = train(
        model,
        tokenizer,
        [load_problems(problems / name / "train.jsonl") for name in names],
        num_steps=num_steps,
        batch_size=batch_size,
        peak_lr=peak_lr,
        seed=seed,
    )
    return model, tokenizer, loss


def main() -> None:
    """Train and write the policy."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--out", type=Path, default=ROOT / "grpo/bundled/quickstart_policy")
    add("--problems", type=Path, default=ROOT / "datasets")
    add("--seed", type=int, default=0)
    add("--threads", type=int, default=1, help="torch's; they decide the last bits")
    add("--steps", type=int, default=1500)
    add("--batch-size", type=int, default=64)
    add("--lr", type=float, default=3e-3, help="the peak")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.use_deterministic_algorithms(True)
    model, tokenizer, loss = make_policy(
        options.problems,
        seed=options.seed,
        num_steps=options.steps,
        batch_size=options.batch_size,
        peak_lr=options.lr,
    )
    figures = {
        "seed": options.seed,
        "threads": options.threads,
        "steps": options.steps,
        "batch_size": options.batch_size,
        "peak_lr": options.lr,
        "parameters": model.num_parameters(),
        "final_loss": round(loss, 4),
        "versions": {name: version(name) for name in ("torch", "transformers", "tokenizers")},
    }
    write_policy(options.out, model, tokenizer, figures)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
