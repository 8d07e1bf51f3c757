"""What it costs to push adapters alone: the push, and generation beside it.

    .venv/bin/python benchmarks/adapter_push.py

The policy has the shape of SmolLM2-135M in float32, its weights drawn, with an adapter of rank 16
beside every linear layer. One engine is given merged weights and one the adapters; both have all
cores and are measured in turns, so that a busy machine shifts both sides.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterable
from pathlib import Path

# This folder has a verifiers.py too.
sys.path[0] = str(Path(__file__).resolve().parents[1])

import torch  # noqa: E402
from transformers import LlamaForCausalLM  # noqa: E402

from benchmarks.smollm2 import open_smollm2  # noqa: E402
from grpo.learner.adapters import add_adapters, gather_adapters  # noqa: E402
from grpo.learner.options import LoraOptions  # noqa: E402
from grpo.learner.served import gather_weights  # noqa: E402
from grpo.rollout.options import AdapterOptions, EngineOptions, available_cores  # noqa: E402
from grpo.rollout.pool import RolloutPool  # noqa: E402
from grpo.rollout.transports import make_sender  # noqa: E402
from grpo.values import RolloutRequest, SamplingOptions  # noqa: E402

RANK = 16
SAMPLING = SamplingOptions(max_completion_length=64, stop_token_ids=())


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    with open_smollm2(store_bytes=200_000_000) as (folder, model):
        add_adapters(model, LoraOptions(r=RANK))
        measure(folder, model, repeats)


def measure(folder: str, model: LlamaForCausalLM, repeats: int) -> None:
    """Pushes into both engines and generation by them, in turns; medians without the first."""
    adapters = {"merged": None, "adapter": AdapterOptions(r=RANK)}
    pools = {
        name: RolloutPool(
            EngineOptions(
                model=folder, max_model_len=512, kv_cache_memory_mb=128, adapter=adapter,
                num_threads=available_cores(),
            )
        )
        for name, adapter in adapters.items()
    }  # fmt: skip
    for pool in pools.values():
        pool.start()
    senders = {name: make_sender("shared_memory") for name in pools}
    found: dict[str, list[float]] = {}
    for turn in range(repeats + 1):
        for name, pool in pools.items():
            pool.forget_weights()
            started = time.perf_counter()
            payload = senders[name].send(give(name, model))
            (push,) = pool.publish(turn + 1, payload)
            found.setdefault(f"{name}: push, s", []).append(time.perf_counter() - started)
            found.setdefault(f"{name}: pause, s", []).append(push.pause_seconds)
            found.setdefault(f"{name}: push, MB", []).append(payload.num_bytes / 1e6)
            for number in (8, 64):
                speed = generate(pool, number, turn)
                found.setdefault(f"{name}: tokens/s, {number} at a time", []).append(speed)
    for name, values in found.items():
        print(f"{name:36} {statistics.median(values[1:]):9.3f}")
    for name, pool in pools.items():
        senders[name].close()
        pool.close()


def give(name: str, model: LlamaForCausalLM) -> Iterable[tuple[str, torch.Tensor]]:
    """What a push carries."""
    if name == "merged":
        return gather_weights(model, "float32")
    return gather_adapters(model, torch.float32)


def generate(pool: RolloutPool, number: int, turn: int) -> float:
    """Tokens of a second, of so many completions at a time."""
    requests = [
        RolloutRequest(problem_id=str(i), prompt_ids=tuple(range(i, i + 32)), seeds=(turn,))
        for i in range(number)
    ]
    started = time.perf_counter()
    tokens = sum(len(rollout.completion_ids) for rollout in pool.generate(requests, SAMPLING))
    return tokens / (time.perf_counter() - started)


if __name__ == "__main__":
    main()
