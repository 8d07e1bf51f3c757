"""A policy's weights over gloo: from the learner's node to engines on any other, without a GPU.

The sender keeps its buffer and hands it to whoever asks, each in a gloo group of two: a receiver
that dies takes no other with it, one that comes up late is served like the rest, and all of them
are served at the same time. Both sides meet at a store of the sender's.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import ray
import torch
import torch.distributed

from grpo.rollout.errors import WeightsRefused
from grpo.rollout.weights import (
    NamedTensors,
    WeightPayload,
    compute_checksum,
    pack_tensors,
    plan_tensors,
)

# torch's type hints leave most of this out.
distributed: Any = torch.distributed

# Each piece of the buffer has the whole of the time limit for itself.
BUCKET_BYTES = 64 << 20
CONNECT_TIMEOUT = timedelta(seconds=30)
BUCKET_TIMEOUT = timedelta(seconds=60)
# The store's clients warn when they time out, so the thread that listens waits without a limit.
_FOR_EVER = timedelta(days=3650)
_TICKETS, _ASKED, _ANSWER = "tickets", "asked", "answer"
_GRANTED, _GONE, _CLOSED = b"granted", b"gone", b"closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GlooHandle:
    """Where a payload can be asked for.

    Attributes:
        host: Address of the sender's node.
        port: Of the sender's store.
        push: Number of the push, which the sender's next one makes void.
    """

    host: str
    port: int
    push: int


class GlooSender:
    """Hands a buffer to engines on other nodes; see `transports.WeightSender`."""

    def __init__(self) -> None:
        self._buffer = np.empty(0, dtype=np.uint8)
        self._host = _own_address()
        self._push = 0
        self._store = distributed.TCPStore(
            self._host, 0, is_master=True, wait_for_workers=False, timeout=CONNECT_TIMEOUT
        )
        self._listener = threading.Thread(
            target=self._listen, args=(self._store.clone(),), name="weights", daemon=True
        )
        self._listener.start()

    def send(
        self, tensors: Iterable[tuple[str, torch.Tensor]], layout: NamedTensors | None = None
    ) -> WeightPayload:
        """As `WeightSender.send`."""
        if layout is None:
            layout = tensors = list(tensors)
        plan, num_bytes = plan_tensors(layout)
        self._push += 1
        if self._buffer.nbytes != num_bytes:
            # Zeroed, because the checksum covers the padding between tensors too.
            self._buffer = np.zeros(num_bytes, dtype=np.uint8)
        pack_tensors(tensors, plan, self._buffer)
        return WeightPayload(
            transport="gloo",
            handle=GlooHandle(host=self._host, port=self._store.port, push=self._push),
            plan=plan,
            num_bytes=num_bytes,
            checksum=compute_checksum(self._buffer),
        )

    def close(self) -> None:
        """As `WeightSender.close`."""
        if self._listener.is_alive():
            _ask(self._store, _CLOSED)
            self._listener.join()
        self._buffer = np.empty(0, dtype=np.uint8)

    def _listen(self, store: Any) -> None:
        ticket = 0
        while True:
            ticket += 1
            store.wait([f"{_ASKED}/{ticket}"], _FOR_EVER)
            asked = store.get(f"{_ASKED}/{ticket}")
            if asked == _CLOSED:
                return
            if int(asked) != self._push:
                store.set(f"{_ANSWER}/{ticket}", _GONE)
                continue
            store.set(f"{_ANSWER}/{ticket}", _GRANTED)
            threading.Thread(
                target=self._hand_over, args=(store.clone(), ticket), daemon=True
            ).start()

    def _hand_over(self, store: Any, ticket: int) -> None:
        try:
            group = _meet(store, ticket, rank=0, host=self._host)
            for bucket in torch.from_numpy(self._buffer).split(BUCKET_BYTES):
                group.send([bucket], 1, 0).wait()
        except RuntimeError:
            # The receiver is gone, or will say itself what it did not get.
            return


def receive(payload: WeightPayload) -> np.ndarray:
    """Fetch the bytes of a payload that a `GlooSender` made.

    Raises:
        WeightsRefused: They did not come; asking again is sound.
    """
    handle: GlooHandle = payload.handle
    try:
        store = distributed.TCPStore(
            handle.host, handle.port, wait_for_workers=False, timeout=CONNECT_TIMEOUT
        )
        ticket = _ask(store, str(handle.push).encode())
        if store.get(f"{_ANSWER}/{ticket}") == _GONE:
            raise WeightsRefused(
                f"Push {handle.push} cannot be had any more: the learner has packed a newer one."
            )
        group = _meet(store, ticket, rank=1, host=_own_address())
        buffer = np.empty(payload.num_bytes, dtype=np.uint8)
        for bucket in torch.from_numpy(buffer).split(BUCKET_BYTES):
            group.recv([bucket], 0, 0).wait()
    except RuntimeError as error:
        if isinstance(error, WeightsRefused):
            raise
        raise WeightsRefused(
            f"The weights did not arrive over gloo from {handle.host}:{handle.port}: {error}. The "
            "engine still serves the version before."
        ) from error
    return buffer


def _ask(store: Any, what: bytes) -> int:
    ticket = store.add(_TICKETS, 1)
    store.set(f"{_ASKED}/{ticket}", what)
    return ticket


def _meet(store: Any, ticket: int, *, rank: int, host: str) -> Any:
    """The group of the sender, rank 0, and one receiver, rank 1."""
    options = distributed.ProcessGroupGloo._Options()  # noqa: SLF001 - the only way to name an interface
    options._devices = [distributed.ProcessGroupGloo.create_device(hostname=host)]  # noqa: SLF001
    options._timeout = BUCKET_TIMEOUT  # noqa: SLF001
    return distributed.ProcessGroupGloo(
        distributed.PrefixStore(f"group/{ticket}", store), rank, 2, options
    )


def _own_address() -> str:
    return ray.util.get_node_ip_address()
