"""A policy's weights over gloo: from the learner's node to engines on any other, without a GPU.

The sender keeps its buffer and hands it to whoever asks, each in a gloo group of two: a receiver
that dies takes no other with it, one that comes up late is served like the rest, and all of them
are served at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch

from grpo.rollout.desk import Address, Ask, Desk, ask, distributed, own_address
from grpo.rollout.errors import WeightsRefused
from grpo.rollout.patience import call_within
from grpo.rollout.weights import (
    NamedTensors,
    PackBuffer,
    WeightPayload,
    pack_payload,
)

# Each piece of the buffer has the whole of the time limit for itself.
BUCKET_BYTES = 64 << 20
BUCKET_TIMEOUT = timedelta(seconds=60)
_GRANTED, _GONE = "granted", "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class GlooHandle:
    """Where a payload can be asked for.

    Attributes:
        address: Of the sender's desk.
        push: Number of the push, which the sender's next one makes void.
    """

    address: Address
    push: int


class GlooSender:
    """Hands a buffer to engines on other nodes; see `transports.WeightSender`."""

    def __init__(self) -> None:
        self._buffer = PackBuffer()
        self._push = 0
        self._desk = Desk(self._hand_over)

    def send(
        self, tensors: Iterable[tuple[str, torch.Tensor]], layout: NamedTensors | None = None
    ) -> WeightPayload:
        """As `WeightSender.send`."""
        self._push += 1
        handle = GlooHandle(address=self._desk.address, push=self._push)
        return pack_payload(
            "gloo", tensors, layout, reserve=self._buffer.reserve, publish=lambda _: handle
        )

    def close(self) -> None:
        """As `WeightSender.close`."""
        self._desk.close()
        self._buffer.close()

    def _hand_over(self, asked: Ask) -> None:
        if int(asked.text) != self._push:
            asked.answer(_GONE)
            return
        asked.answer(_GRANTED)
        try:
            group = _meet(asked, rank=0, host=self._desk.address.host)
            for bucket in torch.from_numpy(self._buffer.data).split(BUCKET_BYTES):
                group.send([bucket], 1, 0).wait()
        except RuntimeError:
            # The receiver is gone, or will say itself what it did not get.
            return


def receive(payload: WeightPayload, reserve: Callable[[int], np.ndarray]) -> np.ndarray:
    """Fetch the bytes of a payload that a `GlooSender` made.

    Args:
        payload: Which.
        reserve: Gives memory of so many bytes to put them into.

    Raises:
        WeightsRefused: They did not come; asking again is sound.
    """
    handle: GlooHandle = payload.handle
    try:
        asked, answer = ask(handle.address, str(handle.push))
        if answer == _GONE:
            raise WeightsRefused(
                f"Push {handle.push} cannot be had any more: the learner has packed a newer one."
            )
        group = call_within(
            2 * BUCKET_TIMEOUT,
            lambda: _meet(asked, rank=1, host=own_address()),
            doing="meeting the learner",
        )
        buffer = reserve(payload.num_bytes)
        for bucket in torch.from_numpy(buffer).split(BUCKET_BYTES):
            group.recv([bucket], 0, 0).wait()
    except RuntimeError as error:
        if isinstance(error, WeightsRefused):
            raise
        raise WeightsRefused(
            f"The weights did not arrive over gloo from {handle.address.host}:"
            f"{handle.address.port}: {error}. The engine still serves the version before."
        ) from error
    return buffer


def _meet(asked: Ask, *, rank: int, host: str) -> Any:
    """The group of the sender, rank 0, and one receiver, rank 1."""
    options = distributed.ProcessGroupGloo._Options()  # noqa: SLF001 - the only way to name an interface
    options._devices = [distributed.ProcessGroupGloo.create_device(hostname=host)]  # noqa: SLF001
    options._timeout = BUCKET_TIMEOUT  # noqa: SLF001
    store = distributed.PrefixStore(f"group/{asked.ticket}", asked.store)
    return distributed.ProcessGroupGloo(store, rank, 2, options)
