"""The learner's end of an NCCL group with the workers of one engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any

import torch


class NcclGroup:
    """Broadcasts to the workers of one engine.

    A broadcast to an engine that died never ends by itself, nor does anything else on its stream;
    so each group has a stream of its own, and `abort` ends what is under way.

    Args:
        communicator: vLLM's, as rank 0.
        stream: Of nobody else.
    """

    def __init__(self, communicator: Any, stream: Any) -> None:
        self._communicator = communicator
        self._stream = stream

    def broadcast(self, pieces: Iterable[torch.Tensor]) -> None:
        """Send pieces, and return once they are sent or `abort` was called."""
        for piece in pieces:
            self._communicator.broadcast(piece, src=0, stream=self._stream)
        self._stream.synchronize()

    def abort(self) -> None:
        """Leave the group, whatever the other side does."""
        self._communicator.destroy()


def open_group(host: str, port: int, world_size: int) -> NcclGroup:
    """Meet the workers of an engine."""
    from vllm.distributed.weight_transfer.nccl_common import trainer_init

    place = {"master_address": host, "master_port": port, "world_size": world_size}
    return NcclGroup(trainer_init(place), torch.cuda.Stream())


def pack_pieces(named: Iterable[tuple[str, torch.Tensor]]) -> list[torch.Tensor]:
    """Copy tensors into the pieces that vLLM's workers expect."""
    return list(_pack(iter(named)))


def _pack(named: Iterator[tuple[str, torch.Tensor]]) -> Iterator[torch.Tensor]:
    from vllm.distributed.weight_transfer import packed_tensor

    size = packed_tensor.DEFAULT_PACKED_BUFFER_SIZE_BYTES
    while (chunk := packed_tensor.pack_tensors(named, itemgetter(1), size)) is not None:
        yield chunk.packed_tensor
