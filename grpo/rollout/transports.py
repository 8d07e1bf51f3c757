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
    PackBuffer,
    Transport,
    WeightPayload,
    pack_payload,
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
        self._buffer = PackBuffer()

    def send(
        self, tensors: Iterable[tuple[str, torch.Tensor]], layout: NamedTensors | None = None
    ) -> WeightPayload:
        """As `WeightSender.send`; the store frees the bytes once nobody holds the payload."""
        return pack_payload(
            "object", tensors, layout, reserve=self._buffer.reserve, publish=ray.put
        )

    def close(self) -> None:
        """As `WeightSender.close`."""
        self._buffer.close()


class SharedMemorySender:
    """Through one shared memory segment: engines on the learner's node only, the fewest copies."""

    def __init__(self) -> None:
        self._segment = OwnedSegment()

    def send(
        self, tensors: Iterable[tuple[str, torch.Tensor]], layout: NamedTensors | None = None
    ) -> WeightPayload:
        """As `WeightSender.send`."""
        return pack_payload(
            "shared_memory",
            tensors,
            layout,
            reserve=self._segment.reserve,
            publish=lambda _: self._segment.name,
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


def open_payload(
    payload: WeightPayload, reserve: Callable[[int], np.ndarray] | None = None
) -> np.ndarray:
    """Find the bytes of a payload, in a Ray worker; only `gloo` copies them.

    From GPU to GPU they never lie in the host's memory: vLLM's workers take them when they load.

    Args:
        payload: Whose.
        reserve: Gives memory of so many bytes for a copy; by default new memory.

    Raises:
        WeightsRefused: They could not be fetched.
    """
    match payload.transport:
        case "object":
            return ray.get(payload.handle)
        case "shared_memory":
            return open_segment(payload.handle, payload.num_bytes)
        case "gloo":
            return gloo.receive(payload, reserve or PackBuffer().reserve)
        case "nccl" | "ipc":
            return np.empty(0, dtype=np.uint8)
