"""What a push of weights costs: transports beside memcpy, the engine's pause, the whole push.

    .venv/bin/python benchmarks/weight_push.py

The policy has the shape of SmolLM2-135M in float32, its weights drawn. What is compared is measured
in turns on one engine, so that a busy machine shifts both sides.
"""

from __future__ import annotations

import argparse
import statistics
import sys
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

from benchmarks.smollm2 import open_smollm2  # noqa: E402
from grpo.rollout.options import EngineOptions  # noqa: E402
from grpo.rollout.pool import RolloutPool  # noqa: E402
from grpo.rollout.transports import WeightSender, make_sender, open_payload  # noqa: E402
from grpo.rollout.weights import (  # noqa: E402
    PackBuffer,
    Transport,
    WeightPayload,
    plan_tensors,
    unpack_tensors,
)

VLLMS_RELOAD = "vLLM's reload"


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    with open_smollm2(store_bytes=2_000_000_000) as (folder, model):
        tensors = list(model.named_parameters())
        _, num_bytes = plan_tensors(tensors)
        copy_s = measure_copy(num_bytes, repeats)
        print(f"{num_bytes / 1e6:.0f} MB; memcpy {num_bytes / 1e9 / copy_s:.1f} GB/s")
        measure_transports(tensors, copy_s, repeats)
        measure_pushes(folder, tensors, repeats)


def measure_copy(num_bytes: int, repeats: int) -> float:
    """Seconds to copy so many bytes between buffers that are in memory."""
    source = np.ones(num_bytes, dtype=np.uint8)
    target = np.zeros(num_bytes, dtype=np.uint8)
    return median(lambda: np.copyto(target, source), repeats)


def measure_transports(tensors: list[Any], copy_s: float, repeats: int) -> None:
    """From the learner's tensors into the reach of another process, beside memcpy.

    The sender's checksum is part of it; the receiver's is computed while it loads.
    """
    for transport in ("shared_memory", "object", "gloo"):
        sender = make_sender(transport)
        sender.send(tensors)  # the first one makes buffers
        if transport == "object":

            def fetch(sender: WeightSender = sender) -> None:
                open_payload(sender.send(tensors))

            seconds = median(fetch, repeats)
        else:
            context = get_context("spawn")
            ours, theirs = context.Pipe()
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
    """A worker: brings each payload into its reach."""
    received = PackBuffer()  # as an engine keeps one
    pipe.send("ready")
    while (payload := pipe.recv()) is not None:
        pipe.send(open_payload(payload, received.reserve).nbytes)


def measure_pushes(folder: str, tensors: list[Any], repeats: int) -> None:
    """Whole pushes into an engine, beside a plain one, vLLM's reload and packing alone."""
    pool = RolloutPool(EngineOptions(model=folder, max_model_len=512, kv_cache_memory_mb=128))
    pool.start()
    pool.wait_ready()
    actor = pool._engines.serving()[0].actor  # noqa: SLF001 - there is one
    senders: dict[Transport, WeightSender] = {
        name: make_sender(name) for name in ("shared_memory", "object", "gloo")
    }
    plain = PlainPush(tensors)
    rows: list[dict[str, float]] = []
    for turn in range(repeats + 1):
        row: dict[str, float] = {}
        for name, sender in senders.items():
            started = time.perf_counter()
            (push,) = pool.publish(turn + 1, sender.send(tensors))
            row[name] = time.perf_counter() - started
            row[f"{name}: beside"] = push.fetch_seconds
            row[f"{name}: pause"] = push.pause_seconds
            pool.forget_weights()
        started = time.perf_counter()
        row[VLLMS_RELOAD] = ray.get(actor.__ray_call__.remote(reload_plainly, plain.pack()))
        row["plain"] = time.perf_counter() - started
        row["packing alone"] = ray.get(actor.__ray_call__.remote(pack_alone))
        rows.append(row)
    # The first turn fills caches and buffers.
    print_pushes(rows[1:])
    for sender in senders.values():
        sender.close()
    pool.close()


def print_pushes(rows: list[dict[str, float]]) -> None:
    """Print medians, and medians of ratios within a turn."""

    def ratio(over: str, under: str) -> float:
        return statistics.median(row[over] / row[under] for row in rows)

    for name in ("shared_memory", "object", "gloo"):
        print(f"plain push / push by {name:13} {ratio('plain', name):.2f}")
    pause = "shared_memory: pause"
    print(f"engine pause / packing alone {ratio(pause, 'packing alone'):.2f}")
    print(f"engine pause / vLLM's reload {ratio(pause, VLLMS_RELOAD):.2f}")
    for name in rows[0]:
        print(f"{name:24} {statistics.median(row[name] for row in rows):.3f} s")


class PlainPush:
    """One flat buffer through the object store; no checksum, no proof.

    Args:
        tensors: What to push.
    """

    def __init__(self, tensors: list[Any]) -> None:
        self._tensors = tensors
        self._plan, num_bytes = plan_tensors(tensors)
        self._buffer = torch.empty(num_bytes, dtype=torch.uint8)

    def pack(self) -> WeightPayload:
        """As `WeightSender.send`."""
        for (_, tensor), spec in zip(self._tensors, self._plan, strict=True):
            part = self._buffer[spec.offset : spec.offset + spec.num_bytes]
            part.view(tensor.dtype).view(tensor.shape).copy_(tensor.detach())
        return WeightPayload(
            transport="object",
            handle=ray.put(self._buffer.numpy()),
            plan=self._plan,
            num_bytes=self._buffer.nbytes,
            checksum="",
        )


def reload_plainly(actor: Any, payload: WeightPayload) -> float:
    """Inside the engine's actor: load by vLLM's own reload; the seconds that it took."""
    from vllm.model_executor.model_loader.reload import (
        finalize_layerwise_reload,
        initialize_layerwise_reload,
    )

    buffer = open_payload(payload)

    def load(engine: Any) -> float:
        @torch.no_grad()
        def reload(model: Any) -> None:
            initialize_layerwise_reload(model)
            model.load_weights(unpack_tensors(buffer, payload.plan))
            finalize_layerwise_reload(model, engine._engine.vllm_config.model_config)  # noqa: SLF001
            # Otherwise the tied head would keep the weights it had.
            model.lm_head.quant_method.process_weights_after_loading(model.lm_head)

        started = time.perf_counter()
        engine._engine.apply_model(reload)  # noqa: SLF001
        engine._drop_caches()  # noqa: SLF001 - as a push does
        return time.perf_counter() - started

    return actor._loop.call(load)  # noqa: SLF001


def pack_alone(actor: Any) -> float:
    """Inside the engine's actor: seconds to pack weights that are there, layer by layer."""
    from vllm import _custom_ops as ops
    from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info

    def find_shapes(model: Any) -> list[Any]:
        # The head's is the embedding's.
        layers = [x for x in model.modules() if hasattr(x, "cpu_linear") and x is not model.lm_head]
        return [get_layerwise_info(x).restore_metadata[0]["weight"].shape for x in layers]

    def pack(engine: Any) -> float:
        (shapes,) = engine._engine.apply_model(find_shapes)  # noqa: SLF001
        weights = [torch.rand(shape) for shape in shapes]
        packed: list[Any] = [None] * len(weights)

        def pack_all() -> None:
            for index, weight in enumerate(weights):
                packed[index] = ops.create_onednn_mm(weight.t(), 32)

        return median(pack_all, 1)

    return actor._loop.call(pack)  # noqa: SLF001


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
