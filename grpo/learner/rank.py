"""The Ray actor that holds one rank of the learner."""

from __future__ import annotations

import collections
import os
import socket
from collections.abc import Sequence
from pathlib import Path

import ray
import torch
from transformers.utils import logging as transformers_logging

from grpo.learner.begun_update import takes_head_start
from grpo.learner.learner import Learner
from grpo.learner.options import LearnerOptions
from grpo.learner.report import UpdateReport
from grpo.learner.watch import CONCURRENCY_GROUP, WRITING
from grpo.rollout.transports import WeightSender, make_sender
from grpo.rollout.weights import Transport, WeightPayload
from grpo.values import Batch, TrainSample
from verifiers.errors import UserError
from verifiers.vitals import Vitals, describe_threads, read_vitals


class LearnerRank:
    """One rank: what `grpo.learner.group.LearnerGroup` asks of a process.

    Args:
        options: What to train, and how.
        rank: This process's number, from 0.
        world_size: How many there are.
    """

    def __init__(self, options: LearnerOptions, rank: int, world_size: int) -> None:
        self._options = options
        self._rank = rank
        self._world_size = world_size
        self._learner: Learner | None = None
        self._senders: dict[Transport, WeightSender] = {}

    def find_address(self) -> tuple[str, int]:
        """Offer an address and a free port of this node for the ranks to meet at."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            return ray.util.get_node_ip_address(), probe.getsockname()[1]

    def setup(self, address: tuple[str, int] | None) -> dict[str, object]:
        """Join the other ranks and load the model.

        Args:
            address: Where the ranks meet; None when there is one rank.

        Returns:
            What this process runs with, for the log.

        Raises:
            UserError: It is to compute on a GPU, and there is none.
        """
        if not self._options.use_cpu:
            _require_gpu(f"learner rank {self._rank}")
        if address is not None:
            os.environ |= {
                "MASTER_ADDR": address[0],
                "MASTER_PORT": str(address[1]),
                "RANK": str(self._rank),
                "WORLD_SIZE": str(self._world_size),
                # Ray shows each actor its own device only, so the local rank is always the first.
                "LOCAL_RANK": "0",
            }
        transformers_logging.disable_progress_bar()
        self._learner = Learner(self._options)
        self._learner.state.reserve()
        return {
            "device": str(self._learner.device),
            "num_threads": torch.get_num_threads(),
            "world_size": self._learner.accelerator.num_processes,
            "reference": self._options.model if self._options.beta > 0 else None,
            "takes_head_start": takes_head_start(self._options),
        }

    def learn_ahead(self, step: int, samples: Sequence[TrainSample]) -> float:
        """As `Learner.learn_ahead`."""
        return self._ready.learn_ahead(step, samples)

    def update(self, batch: Batch) -> UpdateReport:
        """As `Learner.update`."""
        report = self._ready.update(batch)
        if self._options.shares_gpu:
            # What torch keeps for later is an engine's in the meantime.
            torch.cuda.empty_cache()
        return report

    def set_version(self, version: int) -> None:
        """Give the weights as they are now a version."""
        self._ready.policy_version = version

    def publish(self, transport: Transport, *, keeps: bool) -> WeightPayload | None:
        """Pack the weights for the engines; they stay readable until the next call.

        Args:
            transport: How they travel.
            keeps: Whether this rank packs them; otherwise it only gives its shards.
        """
        if not keeps:
            collections.deque(self._ready.named_weights(), maxlen=0)
            return None
        if transport not in self._senders:
            self._senders[transport] = make_sender(transport)
        return self._senders[transport].send(
            self._ready.named_weights(), self._ready.lay_out_weights()
        )

    def score(
        self, completions: Sequence[tuple[Sequence[int], Sequence[int]]], temperature: float
    ) -> list[tuple[float, ...]]:
        """As `Learner.score`, for several pairs of prompt and completion."""
        return [
            self._ready.score(prompt, completion, temperature) for prompt, completion in completions
        ]

    def begin_save(self, folder: Path) -> None:
        """As `LearnerState.begin_save`."""
        self._ready.state.begin_save(folder)

    @ray.method(concurrency_group=WRITING)
    def finish_save(self) -> None:
        """As `LearnerState.finish_save`; other calls are answered meanwhile."""
        self._ready.state.finish_save()

    def load(self, folder: Path) -> int:
        """As `LearnerState.load`; returns the version of the weights."""
        self._ready.state.load(folder)
        return self._ready.policy_version

    @ray.method(concurrency_group=CONCURRENCY_GROUP)
    def look(self) -> tuple[int, Vitals]:
        """How much work is done, as a number that grows, and the state of this process."""
        return (self._learner.num_passes if self._learner else 0), read_vitals()

    @ray.method(concurrency_group=CONCURRENCY_GROUP)
    def describe_threads(self) -> str:
        """Where this process stands, for the report on ranks that hang."""
        return describe_threads()

    def close(self) -> None:
        """Give back what outlives the process, and leave the group of ranks."""
        for sender in self._senders.values():
            sender.close()
        self._senders.clear()
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()

    @property
    def _ready(self) -> Learner:
        assert self._learner is not None, "setup() comes first"
        return self._learner


def _require_gpu(name: str) -> None:
    """See that there is a GPU; without one torch would quietly compute on the CPU.

    Args:
        name: Of who needs it.

    Raises:
        UserError: There is none here.
    """
    if torch.cuda.is_available():
        return
    where = f"The {name} is to compute on a GPU, and torch finds none on {socket.gethostname()}"
    if torch.version.cuda is None:
        raise UserError(
            f"{where}: the torch that is installed there is a build for CPU. Install "
            "`verigrad[gpu]` on every node that offers GPUs."
        )
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    raise UserError(
        f"{where} (CUDA_VISIBLE_DEVICES={visible!r}), though Ray was told that it has some. See "
        "with `nvidia-smi` there whether driver and container give them; a node that is to have "
        "none is started with `ray start --num-gpus=0`."
    )
