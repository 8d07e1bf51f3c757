"""The weights of a policy as one flat buffer, and the plan that says where each tensor lies in it.

A push travels as a `WeightPayload`: small, picklable, with a `handle` to the bytes rather than the
bytes. Whoever owns the weights makes payloads with a sender of `transports.py`; an engine reads
them back. Nothing here knows Ray or vLLM.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from grpo.rollout.buffer_checksum import BufferChecksum

Transport = Literal["object", "shared_memory", "gloo", "nccl", "ipc"]
# From GPU to GPU; the others go through the host's memory.
DEVICE_TRANSPORTS: frozenset[Transport] = frozenset({"nccl", "ipc"})
NamedTensors = Sequence[tuple[str, torch.Tensor]]

# Every tensor starts on a cache line, which also satisfies the alignment of any dtype's view.
ALIGNMENT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """Where one tensor lies in the buffer.

    Attributes:
        name: As the checkpoint calls it (Hugging Face's name).
        dtype: Name of the torch dtype, as `float32`.
        shape: Full shape.
        offset: First byte.
        num_bytes: Length, padding not counted.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightPayload:
    """One push of weights.

    Attributes:
        transport: How the bytes travel.
        handle: What the transport needs to find them: a Ray object reference, the name of a shared
            memory segment, an address to ask at, or what CUDA opens another process's memory with.
        plan: Every tensor, in the order of the model.
        num_bytes: Length of the buffer.
        checksum: Of the whole buffer, see `buffer_checksum`; from GPU to GPU of the tensors, see
            `tensor_checksum`.
    """

    transport: Transport
    handle: Any
    plan: tuple[TensorSpec, ...]
    num_bytes: int
    checksum: str


def plan_tensors(tensors: NamedTensors) -> tuple[tuple[TensorSpec, ...], int]:
    """Lay tensors out one after the other.

    Returns:
        The plan, and the length of the buffer it needs, in bytes.
    """
    plan: list[TensorSpec] = []
    offset = 0
    for name, tensor in tensors:
        num_bytes = tensor.numel() * tensor.element_size()
        dtype = str(tensor.dtype).removeprefix("torch.")
        plan.append(
            TensorSpec(
                name=name,
                dtype=dtype,
                shape=tuple(tensor.shape),
                offset=offset,
                num_bytes=num_bytes,
            )
        )
        offset += -(-num_bytes // ALIGNMENT) * ALIGNMENT
    return tuple(plan), offset


def pack_tensors(
    tensors: Iterable[tuple[str, torch.Tensor]], plan: Sequence[TensorSpec], buffer: np.ndarray
) -> str:
    """Copy tensors into a buffer, from whatever device they are on.

    Args:
        tensors: What `plan` describes; each is asked for when its turn comes.
        plan: Where each goes.
        buffer: Writable uint8 array of the plan's length.

    Returns:
        The buffer's checksum, as `compute_checksum` would find it.
    """
    flat = torch.from_numpy(buffer)
    checksum = BufferChecksum(buffer)
    for (name, tensor), spec in zip(tensors, plan, strict=True):
        assert name == spec.name, (name, spec.name)
        _view(flat, spec).copy_(tensor.detach())
        checksum.advance(spec.offset + spec.num_bytes)
    return checksum.value()


class PackBuffer:
    """Memory that each push is packed into anew."""

    def __init__(self) -> None:
        self.data = np.empty(0, dtype=np.uint8)

    def reserve(self, num_bytes: int) -> np.ndarray:
        """The buffer, of this size."""
        if self.data.nbytes != num_bytes:
            # Zeroed, because the checksum covers the padding between tensors too.
            self.data = np.zeros(num_bytes, dtype=np.uint8)
        return self.data

    def close(self) -> None:
        """Give the memory back."""
        self.data = np.empty(0, dtype=np.uint8)


def pack_payload(
    transport: Transport,
    tensors: Iterable[tuple[str, torch.Tensor]],
    layout: NamedTensors | None,
    *,
    reserve: Callable[[int], np.ndarray],
    publish: Callable[[np.ndarray], Any],
) -> WeightPayload:
    """Pack tensors into one buffer.

    Args:
        transport: How the buffer is carried.
        tensors: Each is asked for when its turn comes.
        layout: Their names, types and shapes; None where the tensors exist beforehand.
        reserve: Gives a buffer of so many bytes.
        publish: Makes the packed buffer readable, and gives the handle that it is found by.
    """
    if layout is None:
        layout = tensors = list(tensors)
    plan, num_bytes = plan_tensors(layout)
    buffer = reserve(num_bytes)
    checksum = pack_tensors(tensors, plan, buffer)
    return WeightPayload(
        transport=transport,
        handle=publish(buffer),
        plan=plan,
        num_bytes=num_bytes,
        checksum=checksum,
    )


def unpack_tensors(
    buffer: np.ndarray, plan: Iterable[TensorSpec]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Give every tensor of a buffer by name, as a view: nothing is copied.

    Args:
        buffer: uint8 array; it may be read-only, and then so must be the use of the views.
        plan: Where each tensor lies.
    """
    return view_tensors(_as_tensor(buffer), plan)


def view_tensors(
    flat: torch.Tensor, plan: Iterable[TensorSpec]
) -> Iterator[tuple[str, torch.Tensor]]:
    """As `unpack_tensors`, of a buffer on any device."""
    for spec in plan:
        yield spec.name, _view(flat, spec)


def _view(flat: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    dtype: torch.dtype = getattr(torch, spec.dtype)
    if not spec.num_bytes:
        # torch gives an empty slice a stride that it then refuses to reinterpret.
        return torch.empty(spec.shape, dtype=dtype)
    part = flat[spec.offset : spec.offset + spec.num_bytes]
    return part.view(dtype).view(spec.shape)


def _as_tensor(buffer: np.ndarray) -> torch.Tensor:
    with warnings.catch_warnings():
        # torch has no read-only tensors and warns about such arrays; the views made here are only
        # ever read from.
        warnings.filterwarnings("ignore", message=".*not writable", category=UserWarning)
        return torch.from_numpy(buffer)
