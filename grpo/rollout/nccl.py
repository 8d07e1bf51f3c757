"""A policy's weights over NCCL: broadcast from the learner's GPU to all GPUs of an engine.

An engine joins once, in a group of the learner's rank 0 and its own workers, and asks for each
push. vLLM's own code opens the groups and cuts the broadcast into packed pieces.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import torch

from grpo.rollout.desk import Address, Ask, Desk, ask, own_address
from grpo.rollout.errors import WeightsRefused
from grpo.rollout.nccl_group import NcclGroup, open_group, pack_pieces
from grpo.rollout.tensor_checksum import TensorChecksum
from grpo.rollout.weights import NamedTensors, WeightPayload, plan_tensors

_JOIN_TIMEOUT_S = 120.0
# How long a broadcast that an engine has taken may need to be seen as done.
_FINISH_S = 5.0
_GRANTED, _GONE, _UNKNOWN = "granted", "gone", "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclHandle:
    """Where a payload can be asked for.

    Attributes:
        address: Of the sender's desk.
        push: Number of the push, which the sender's next one makes void.
    """

    address: Address
    push: int


@dataclass(slots=True)
class _Member:
    """An engine that has joined.

    Attributes:
        group: What is broadcast in, once both sides are there.
        pushed: The last push that it has taken whole.
        busy: Held while it takes one.
    """

    group: Future[NcclGroup]
    pushed: int = 0
    busy: threading.Lock = field(default_factory=threading.Lock)

    def leave(self) -> None:
        """End what is under way, and leave the group."""
        if self.group.done() and not self.group.exception():
            self.group.result().abort()


class NcclSender:
    """Keeps a copy of the weights on the GPU of rank 0; see `transports.WeightSender`.

    An engine takes every push, or it is taken for lost: its group is left before the next, and
    should it be there after all, it joins anew.
    """

    def __init__(self) -> None:
        self._pieces: list[torch.Tensor] = []
        self._push = 0
        self._members: dict[str, _Member] = {}
        self._desk = Desk(self._deal)

    def send(
        self, tensors: Iterable[tuple[str, torch.Tensor]], layout: NamedTensors | None = None
    ) -> WeightPayload:
        """As `WeightSender.send`."""
        if layout is None:
            layout = tensors = list(tensors)
        past, self._push = self._push, self._push + 1
        self._drop_all_without(past)
        # Before the new copies are made: a GPU may not hold both.
        self._pieces = []
        checksum = TensorChecksum()
        self._pieces = pack_pieces(_count(tensors, checksum))
        # The broadcasts run on other streams. Waiting for those too would wait for the dead.
        if torch.accelerator.is_available():
            torch.accelerator.current_stream().synchronize()
        plan, num_bytes = plan_tensors(layout)
        return WeightPayload(
            transport="nccl",
            handle=NcclHandle(address=self._desk.address, push=self._push),
            plan=plan,
            num_bytes=num_bytes,
            checksum=checksum.value(),
        )

    def close(self) -> None:
        """As `WeightSender.close`."""
        self._desk.close()
        for engine in list(self._members):
            self._members.pop(engine).leave()
        self._pieces = []

    def _drop_all_without(self, push: int) -> None:
        """Leave the groups of engines that have not taken a push."""
        give_up = time.monotonic() + _FINISH_S
        for engine, member in list(self._members.items()):
            finished = member.busy.acquire(timeout=max(0.0, give_up - time.monotonic()))
            if finished:
                member.busy.release()
            if not finished or member.pushed != push:
                del self._members[engine]
                member.leave()

    def _deal(self, asked: Ask) -> None:
        kind, engine, number = asked.text.split()
        if kind == "join":
            self._join(asked, engine, num_workers=int(number))
            return
        member, pieces = self._members.get(engine), self._pieces
        if int(number) != self._push:
            asked.answer(_GONE)
        elif member is None:
            asked.answer(_UNKNOWN)
        else:
            with member.busy:
                asked.answer(_GRANTED)
                member.group.result(_JOIN_TIMEOUT_S).broadcast(pieces)
                member.pushed = int(number)

    def _join(self, asked: Ask, engine: str, *, num_workers: int) -> None:
        member = self._members[engine] = _Member(group=Future())
        host, port = self._desk.address.host, _free_port()
        asked.answer(str(port))
        member.group.set_result(open_group(host, port, 1 + num_workers))


class NcclReceiver:
    """The engine's side: joins a sender it does not know yet, and asks for pushes.

    Args:
        engine: A name that no other engine has.
        num_workers: GPUs that the engine spans.
        init_workers: Hands vLLM's workers what they join with.
    """

    def __init__(
        self, engine: str, num_workers: int, init_workers: Callable[[dict[str, Any]], None]
    ) -> None:
        self._engine = engine
        self._num_workers = num_workers
        self._init_workers = init_workers
        self._sender: Address | None = None

    def request(self, payload: WeightPayload) -> None:
        """Have a push broadcast; the workers must take it next.

        Raises:
            WeightsRefused: It cannot be had, and nothing was changed.
        """
        handle: NcclHandle = payload.handle
        try:
            if self._sender != handle.address:
                self._join(handle.address)
            answer = self._ask(handle)
            if answer == _UNKNOWN:
                # The learner took this engine for lost.
                self._join(handle.address)
                answer = self._ask(handle)
        except RuntimeError as error:
            raise WeightsRefused(
                f"The learner did not answer at {handle.address.host}:{handle.address.port}: "
                f"{error}. The engine still serves the version before."
            ) from error
        if answer == _GONE:
            raise WeightsRefused(
                f"Push {handle.push} cannot be had any more: the learner has packed a newer one."
            )

    def _ask(self, handle: NcclHandle) -> str:
        return ask(handle.address, f"push {self._engine} {handle.push}")[1]

    def _join(self, address: Address) -> None:
        _, port = ask(address, f"join {self._engine} {self._num_workers}")
        self._init_workers(
            {
                "master_address": address.host,
                "master_port": int(port),
                "rank_offset": 1,
                "world_size": 1 + self._num_workers,
                "packed": True,
            }
        )
        self._sender = address


def _count(
    named: Iterable[tuple[str, torch.Tensor]], checksum: TensorChecksum
) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in named:
        checksum.add(name, tensor)
        yield name, tensor.detach()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((own_address(), 0))
        return probe.getsockname()[1]
