"""What a push of weights costs: the transports beside memcpy, the engine's pause, the whole push.

    .venv/bin/python benchmarks/weight_push.py

The policy has the shape of SmolLM2-135M in float32, its weights drawn. What is compared is measured
in turns on one engine, so that a busy machine shifts both sides.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

# This folder has a verifiers.py too.
sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np  # noqa: E402
import ray  # noqa: E402
import torch  # noqa: E402
from transformers import AutoTokenizer, LlamaForCausalLM  # noqa: E402

from benchmarks.shapes import SMOLLM2  # noqa: E402
from grpo.paths import find_model  # noqa: E402
from grpo.rollout.options import EngineOptions, available_cores  # noqa: E402
from grpo.rollout.pool import RolloutPool  # noqa: E402
from grpo.rollout.transports import WeightSender, make_sender, open_payload  # noqa: E402
from grpo.rollout.weights import (  # noqa: E402
    Transport,
    WeightPayload,
    compute_checksum,
    pack_tensors,
    plan_tensors,
)
from grpo.seeding import seed_everything  # noqa: E402

STEPS_OF_AN_UPDATE = ("start_weight_update", "update_weights", "finish_weight_update")


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(available_cores())
    seed_everything(0)
    ray.init(
        address="local",
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=2_000_000_000,
        runtime_env={"env_vars": {"PYTHONPATH": sys.path[0]}},
    )
    with tempfile.TemporaryDirectory() as folder:
        model = LlamaForCausalLM(SMOLLM2).eval()
        model.save_pretrained(folder)
        AutoTokenizer.from_pretrained(find_model("embedded:quickstart")).save_pretrained(folder)
        tensors = list(model.named_parameters())
        _, num_bytes = plan_tensors(tensors)
        copy_s = measure_copy(num_bytes, repeats)
        print(f"{num_bytes / 1e6:.0f} MB; memcpy {num_bytes / 1e9 / copy_s:.1f} GB/s")
        measure_transports(tensors, copy_s, repeats)
        measure_pushes(folder, tensors, repeats)
    ray.shutdown()


def measure_copy(num_bytes: int, repeats: int) -> float:
    """Seconds to copy so many bytes between buffers that are in memory."""
    source = np.ones(num_bytes, dtype=np.uint8)
    target = np.zeros(num_bytes, dtype=np.uint8)
    return median(lambda: np.copyto(target, source), repeats)


def measure_transports(tensors: list[Any], copy_s: float, repeats: int) -> None:
    """From the learner's tensors into the reach of another process, beside one memcpy."""
    for transport in ("shared_memory", "object", "gloo"):
        sender = make_sender(transport)
        sender.send(tensors)  # the first one makes buffers
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        if transport == "object":
            seconds = median(lambda s=sender: open_payload(s.send(tensors)), repeats)
        else:
            process = context.Process(target=fetch_for_ever, args=(theirs,))
            process.start()
            ours.recv()

            def push(sender: WeightSender = sender, pipe: Any = ours) -> None:
                pipe.send(sender.send(tensors))
                pipe.recv()

            seconds = median(push, repeats)
            ours.send(None)
            process.join()
        sender.close()
        print(f"{transport:14} {seconds:.3f} s, {copy_s / seconds:.2f} of memcpy's bandwidth")


def fetch_for_ever(pipe: Any) -> None:
    """A worker: brings each payload into its reach and reads its last byte."""
    pipe.send("ready")
    while (payload := pipe.recv()) is not None:
        pipe.send(int(open_payload(payload)[-1]))


def measure_pushes(folder: str, tensors: list[Any], repeats: int) -> None:
    """Whole pushes into an engine, the reload alone, and a push as plain as it can be."""
    pool = RolloutPool(EngineOptions(model=folder, max_model_len=512, kv_cache_memory_mb=128))
    pool.start()
    pool.wait_ready()
    actor = pool._engines.serving()[0].actor  # noqa: SLF001 - there is one
    senders: dict[Transport, WeightSender] = {
        name: make_sender(name) for name in ("shared_memory", "object", "gloo")
    }
    plain = PlainPush(tensors)
    found: dict[str, list[float]] = {}
    pauses: list[float] = []
    fetches: dict[str, float] = {}
    for turn in range(repeats + 1):
        row: dict[str, float] = {}
        for name, sender in senders.items():
            started = time.perf_counter()
            (push,) = pool.publish(turn + 1, sender.send(tensors))
            row[name] = time.perf_counter() - started
            fetches[name] = push.fetch_seconds
            if name == "shared_memory":
                pauses.append(push.pause_seconds)
            pool.forget_weights()
        started = time.perf_counter()
        payload = plain.pack()
        ray.get(actor.__ray_call__.remote(load_plainly, payload))
        row["plain object-store push"] = time.perf_counter() - started
        row["reload alone"] = ray.get(actor.__ray_call__.remote(reload_alone, payload))
        for name, seconds in row.items():
            found.setdefault(name, []).append(seconds)
    # The first turn fills caches and buffers.
    medians = {name: statistics.median(seconds[1:]) for name, seconds in found.items()}
    for name, seconds in medians.items():
        fetch = f", fetched in {fetches[name]:.3f} s the last time" if name in fetches else ""
        print(f"{name:24} {seconds:.3f} s{fetch}")
    pause = statistics.median(pauses[1:])
    print(f"engine pause {pause:.3f} s, {pause / medians['reload alone']:.2f} x the reload alone")
    gain = medians["plain object-store push"] / medians["shared_memory"]
    print(f"a push by shared memory is {gain:.2f} x as fast as a plain one by the object store")
    for sender in senders.values():
        sender.close()
    pool.close()


class PlainPush:
    """One flat buffer through the object store; no checksum, no proof.

    Args:
        tensors: What to push.
    """

    def __init__(self, tensors: list[Any]) -> None:
        self._tensors = tensors
        self._plan, num_bytes = plan_tensors(tensors)
        self._buffer = np.zeros(num_bytes, dtype=np.uint8)

    def pack(self) -> WeightPayload:
        """As `WeightSender.send`."""
        pack_tensors(self._tensors, self._plan, self._buffer)
        return WeightPayload(
            transport="object",
            handle=ray.put(self._buffer),
            plan=self._plan,
            num_bytes=self._buffer.nbytes,
            checksum="",
        )


def load_plainly(actor: Any, payload: WeightPayload) -> float:
    """Inside the engine's actor: load a payload without checks; the seconds it took."""
    buffer = open_payload(payload)

    def load(engine: Any) -> float:
        started = time.perf_counter()
        update = engine._make_update(payload, buffer)  # noqa: SLF001 - what a push does
        for step in STEPS_OF_AN_UPDATE:
            arguments = {"update_info": update} if step == "update_weights" else {}
            engine._engine.collective_rpc(step, kwargs=arguments)  # noqa: SLF001
        seconds = time.perf_counter() - started
        engine._drop_caches()  # noqa: SLF001
        return seconds

    return actor._loop.call(load)  # noqa: SLF001


def reload_alone(actor: Any, payload: WeightPayload) -> float:
    """Inside the engine's actor: seconds in which it loads and packs what is in memory already."""
    compute_checksum(open_payload(payload))  # brings it in
    return load_plainly(actor, payload)


def median(act: Callable[[], object], repeats: int) -> float:
    """Median seconds of several calls, after one that is not counted."""
    act()
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        act()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
