"""A policy's weights over NCCL: broadcast from the learner's GPU to all GPUs of an engine.

An engine joins once, in a group of the learner's rank 0 and its own workers, and asks for each
push. vLLM's own code opens the groups and cuts the broadcast into packed pieces.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import torch

from grpo.rollout.desk import Address, Ask, Desk, ask, own_address
from grpo.rollout.errors import WeightsRefused
from grpo.rollout.tensor_checksum import TensorChecksum
from grpo.rollout.weights import NamedTensors, WeightPayload, plan_tensors

_JOIN_TIMEOUT_S = 120.0
_GRANTED, _GONE = "granted", "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclHandle:
    """Where a payload can be asked for.

    Attributes:
        address: Of the sender's desk.
        push: Number of the push, which the sender's next one makes void.
    """

    address: Address
    push: int


class NcclSender:
    """Keeps a copy of the weights on the GPU of rank 0; see `transports.WeightSender`."""

    def __init__(self) -> None:
        self._copies: list[tuple[str, torch.Tensor]] = []
        self._push = 0
        self._groups: dict[str, Future[Any]] = {}
        self._desk = Desk(self._deal)

    def send(
        self, tensors: Iterable[tuple[str, torch.Tensor]], layout: NamedTensors | None = None
    ) -> WeightPayload:
        """As `WeightSender.send`."""
        if layout is None:
            layout = tensors = list(tensors)
        self._push += 1
        # Before the new copies are made: a GPU may not hold both.
        self._copies = []
        checksum = TensorChecksum()
        for name, tensor in tensors:
            copy = tensor.detach().clone(memory_format=torch.contiguous_format)
            checksum.add(name, copy)
            self._copies.append((name, copy))
        # The broadcast runs on streams of its own.
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()
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
        self._copies = []

    def _deal(self, asked: Ask) -> None:
        kind, engine, number = asked.text.split()
        if kind == "join":
            self._join(asked, engine, num_workers=int(number))
        elif int(number) != self._push:
            asked.answer(_GONE)
        else:
            asked.answer(_GRANTED)
            group = self._groups[engine].result(_JOIN_TIMEOUT_S)
            broadcast(self._copies, group)

    def _join(self, asked: Ask, engine: str, *, num_workers: int) -> None:
        self._groups[engine] = Future()
        host, port = self._desk.address.host, _free_port()
        asked.answer(str(port))
        self._groups[engine].set_result(open_group(host, port, 1 + num_workers))


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
            _, answer = ask(handle.address, f"push {self._engine} {handle.push}")
        except RuntimeError as error:
            raise WeightsRefused(
                f"The learner did not answer at {handle.address.host}:{handle.address.port}: "
                f"{error}. The engine still serves the version before."
            ) from error
        if answer == _GONE:
            raise WeightsRefused(
                f"Push {handle.push} cannot be had any more: the learner has packed a newer one."
            )

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


def open_group(host: str, port: int, world_size: int) -> Any:
    """The learner's end of a group with the workers of an engine."""
    from vllm.distributed.weight_transfer.nccl_common import trainer_init

    return trainer_init({"master_address": host, "master_port": port, "world_size": world_size})


def broadcast(named: Iterable[tuple[str, torch.Tensor]], group: Any) -> None:
    """Send tensors to the workers of a group."""
    from vllm.distributed.weight_transfer.packed_tensor import packed_nccl_broadcast_producer

    packed_nccl_broadcast_producer(
        iterator=iter(named), group=group, src=0, post_iter_func=lambda item: item[1]
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((own_address(), 0))
        return probe.getsockname()[1]
