"""A policy's weights by CUDA IPC: engines read them where they are, on the GPU that both share."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.multiprocessing.reductions import reduce_tensor

from grpo.rollout.tensor_checksum import TensorChecksum
from grpo.rollout.weights import NamedTensors, WeightPayload, plan_tensors

# For each tensor, by the GPU's identity, what another process opens it with.
IpcHandles = Sequence[Mapping[str, tuple[Any, ...]]]


class IpcSender:
    """Keeps a copy of the weights on its rank's GPU; see `transports.WeightSender`.

    Every rank has one, for the engine on the same GPU; `merge_handles` puts their payloads
    together.
    """

    def __init__(self) -> None:
        self._copies: list[torch.Tensor] = []

    def send(
        self, tensors: Iterable[tuple[str, torch.Tensor]], layout: NamedTensors | None = None
    ) -> WeightPayload:
        """As `WeightSender.send`."""
        if layout is None:
            layout = tensors = list(tensors)
        # Before the new copies are made: a GPU may not hold both.
        self._copies = []
        torch.cuda.ipc_collect()
        device = torch.cuda.current_device()
        gpu = str(torch.cuda.get_device_properties(device).uuid)
        checksum, handles = TensorChecksum(), []
        for name, tensor in tensors:
            copy = tensor.detach().clone(memory_format=torch.contiguous_format)
            checksum.add(name, copy)
            _, arguments = reduce_tensor(copy)
            handles.append({gpu: arguments})
            self._copies.append(copy)
        torch.cuda.synchronize(device)
        plan, num_bytes = plan_tensors(layout)
        return WeightPayload(
            transport="ipc",
            handle=handles,
            plan=plan,
            num_bytes=num_bytes,
            checksum=checksum.value(),
        )

    def close(self) -> None:
        """As `WeightSender.close`."""
        self._copies = []


def merge_handles(payloads: Sequence[WeightPayload]) -> WeightPayload:
    """One payload for engines on any of the ranks' GPUs.

    Args:
        payloads: Of every rank, of the same weights.
    """
    first = payloads[0]
    assert all(payload.checksum == first.checksum for payload in payloads), "ranks differ"
    together = zip(*(payload.handle for payload in payloads), strict=True)
    merged = [{gpu: a for part in parts for gpu, a in part.items()} for parts in together]
    return replace(first, handle=merged)


def make_ipc_update(payload: WeightPayload) -> dict[str, Any]:
    """What vLLM's engine for CUDA IPC is told of a push.

    The handles hold Python objects that vLLM passes on to its workers in this form only, and only
    where `VLLM_ALLOW_INSECURE_SERIALIZATION` is set; they come from this run's own learner.
    """
    return {
        **describe_tensors(payload),
        "ipc_handles_pickled": base64.b64encode(pickle.dumps(payload.handle)).decode(),
    }


def describe_tensors(payload: WeightPayload) -> dict[str, Any]:
    """Names, types and shapes as vLLM's engines want them."""
    return {
        "names": [spec.name for spec in payload.plan],
        "dtype_names": [spec.dtype for spec in payload.plan],
        "shapes": [list(spec.shape) for spec in payload.plan],
    }
