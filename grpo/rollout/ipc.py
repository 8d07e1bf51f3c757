"""A policy's weights by CUDA IPC: engines read them where they are, on the GPU that both share.

Each rank that shares its GPU with an engine packs its weights into one buffer, which it keeps and
exports once. torch would keep every further export on the GPU until it is opened and released.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from torch.multiprocessing.reductions import rebuild_cuda_tensor, reduce_tensor

from grpo.rollout.tensor_checksum import TensorChecksum
from grpo.rollout.weights import NamedTensors, WeightPayload, plan_tensors, view_tensors

# Where `rebuild_cuda_tensor` is told the number of the device, which each process counts anew.
_DEVICE = 6


class IpcSender:
    """Keeps a copy of the weights on its rank's GPU; see `transports.WeightSender`.

    Every rank has one that shares its GPU with an engine; `merge_exports` puts their payloads
    together.
    """

    def __init__(self) -> None:
        self._buffer: torch.Tensor | None = None
        self._exports: dict[str, tuple[Any, ...]] = {}

    def send(
        self, tensors: Iterable[tuple[str, torch.Tensor]], layout: NamedTensors | None = None
    ) -> WeightPayload:
        """As `WeightSender.send`."""
        if layout is None:
            layout = tensors = list(tensors)
        plan, num_bytes = plan_tensors(layout)
        buffer = self._reserve(num_bytes)
        checksum = TensorChecksum()
        for (name, tensor), (_, place) in zip(tensors, view_tensors(buffer, plan), strict=True):
            checksum.add(name, place.copy_(tensor.detach()))
        torch.cuda.synchronize()
        return WeightPayload(
            transport="ipc",
            handle=self._exports,
            plan=plan,
            num_bytes=num_bytes,
            checksum=checksum.value(),
        )

    def close(self) -> None:
        """As `WeightSender.close`."""
        self._buffer = None

    def _reserve(self, num_bytes: int) -> torch.Tensor:
        if self._buffer is None or self._buffer.numel() != num_bytes:
            self._buffer, gpu = allocate(num_bytes)
            _, arguments = reduce_tensor(self._buffer)
            self._exports = {gpu: arguments}
        return self._buffer


def allocate(num_bytes: int) -> tuple[torch.Tensor, str]:
    """Bytes on this process's GPU, and the GPU's identity."""
    device = torch.cuda.current_device()
    gpu = str(torch.cuda.get_device_properties(device).uuid)
    return torch.empty(num_bytes, dtype=torch.uint8, device=f"cuda:{device}"), gpu


class Opened:
    """An engine's view of its rank's buffer, opened once however often it is read."""

    def __init__(self) -> None:
        self._opened: tuple[tuple[Any, ...], torch.Tensor] | None = None

    def find(self, exports: str, device: torch.device) -> torch.Tensor:
        """The buffer on this GPU.

        Args:
            exports: As `make_ipc_update` encodes them.
            device: The GPU, as this process counts.

        Raises:
            ValueError: No rank has a buffer on this GPU.
        """
        known: dict[str, tuple[Any, ...]] = pickle.loads(base64.b64decode(exports))  # noqa: S301 - of this run's own learner
        gpu = str(torch.cuda.get_device_properties(device).uuid)
        if gpu not in known:
            raise ValueError(f"no learner rank packs weights on GPU {gpu}, only on {list(known)}")
        key = known[gpu]
        if self._opened is None or self._opened[0] != key:
            # A learner that was started anew has another one.
            self.close()
            here: Any = (*key[:_DEVICE], device.index, *key[_DEVICE + 1 :])
            self._opened = key, rebuild_cuda_tensor(*here)
        return self._opened[1]

    def close(self) -> None:
        """Let go of the buffer. Calling it twice is harmless."""
        self._opened = None


def merge_exports(payloads: Sequence[WeightPayload]) -> WeightPayload:
    """One payload for engines on any of the ranks' GPUs.

    Args:
        payloads: Of the ranks that share their GPU with an engine, of the same weights.
    """
    first = payloads[0]
    assert all(payload.checksum == first.checksum for payload in payloads), "ranks differ"
    merged = {gpu: export for payload in payloads for gpu, export in payload.handle.items()}
    return replace(first, handle=merged)


def make_ipc_update(payload: WeightPayload) -> dict[str, Any]:
    """What an engine's worker is told of a push.

    vLLM's messages to its workers carry plain values only, and what CUDA opens another process's
    memory with is none.
    """
    return {
        "exports": base64.b64encode(pickle.dumps(payload.handle)).decode(),
        "plan": [asdict(spec) for spec in payload.plan],
    }


def describe_tensors(payload: WeightPayload) -> dict[str, Any]:
    """Names, types and shapes as vLLM's engine for NCCL wants them."""
    return {
        "names": [spec.name for spec in payload.plan],
        "dtype_names": [spec.dtype for spec in payload.plan],
        "shapes": [list(spec.shape) for spec in payload.plan],
    }
