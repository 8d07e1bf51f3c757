"""How a policy's weights get from the learner's memory into an engine's, without touching disk.

A sender lives beside the weights and turns them into a payload; the engine's actor finds the bytes
by the payload's handle. A new transport is one more name in `weights.Transport`, one more sender
here, and one more case in `open_payload`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np
import ray
import torch

from grpo.rollout import gloo
from grpo.rollout.ipc import IpcSender
from grpo.rollout.nccl import NcclSender
from grpo.rollout.segments import OwnedSegment, open_segment
from grpo.rollout.weights import (
    NamedTensors,
    Transport,
    WeightPayload,
    compute_checksum,
    pack_tensors,
    plan_tensors,
)


class WeightSender(Protocol):
    """Makes payloads; a learner keeps one for the whole run, so that its buffer is reused."""

    def send(
        self, tensors: Iterable[tuple[str, torch.Tensor]], layout: NamedTensors | None = None
    ) -> WeightPayload:
        """Pack tensors and make them readable for engines, until the next `send` or `close`.

        Args:
            tensors: Each is asked for when its turn comes, so that no two need exist at a time.
            layout: Their names, types and shapes, where the tensors do not exist beforehand.
        """
        ...

    def close(self) -> None:
        """Give the memory back. Calling it twice is harmless."""
        ...


class ObjectStoreSender:
    """Through Ray's object store: reaches every node, costs one copy more than shared memory."""

    def __init__(self) -> None:
        self._buffer = np.empty(0, dtype=np.uint8)

    def send(
        self, tensors: Iterable[tuple[str, torch.Tensor]], layout: NamedTensors | None = None
    ) -> WeightPayload:
        """As `WeightSender.send`; the store frees the bytes once nobody holds the payload."""
        if layout is None:
            layout = tensors = list(tensors)
        plan, num_bytes = plan_tensors(layout)
        if self._buffer.nbytes != num_bytes:
            # Zeroed, because the checksum covers the padding between tensors too.
            self._buffer = np.zeros(num_bytes, dtype=np.uint8)
        pack_tensors(tensors, plan, self._buffer)
        return WeightPayload(
            transport="object",
            handle=ray.put(self._buffer),
            plan=plan,
            num_bytes=num_bytes,
            checksum=compute_checksum(self._buffer),
        )

    def close(self) -> None:
        """As `WeightSender.close`."""
        self._buffer = np.empty(0, dtype=np.uint8)


class SharedMemorySender:
    """Through one shared memory segment: engines on the learner's node only, the fewest copies."""

    def __init__(self) -> None:
        self._segment = OwnedSegment()

    def send(
        self, tensors: Iterable[tuple[str, torch.Tensor]], layout: NamedTensors | None = None
    ) -> WeightPayload:
        """As `WeightSender.send`."""
        if layout is None:
            layout = tensors = list(tensors)
        plan, num_bytes = plan_tensors(layout)
        buffer = self._segment.reserve(num_bytes)
        pack_tensors(tensors, plan, buffer)
        return WeightPayload(
            transport="shared_memory",
            handle=self._segment.name,
            plan=plan,
            num_bytes=num_bytes,
            checksum=compute_checksum(buffer),
        )

    def close(self) -> None:
        """As `WeightSender.close`."""
        self._segment.close()


SENDERS: dict[Transport, Callable[[], WeightSender]] = {
    "object": ObjectStoreSender,
    "shared_memory": SharedMemorySender,
    "gloo": gloo.GlooSender,
    "nccl": NcclSender,
    "ipc": IpcSender,
}


def make_sender(transport: Transport) -> WeightSender:
    """Build the sender of a transport."""
    return SENDERS[transport]()


def open_payload(payload: WeightPayload) -> np.ndarray:
    """Find the bytes of a payload, in a Ray worker; only `gloo` copies them.

    From GPU to GPU they never lie in the host's memory: vLLM's workers take them when they load.

    Raises:
        WeightsRefused: They could not be fetched.
    """
    match payload.transport:
        case "object":
            return ray.get(payload.handle)
        case "shared_memory":
            return open_segment(payload.handle, payload.num_bytes)
        case "gloo":
            return gloo.receive(payload)
        case "nccl" | "ipc":
            return np.empty(0, dtype=np.uint8)
