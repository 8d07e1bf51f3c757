"""The worker's side of a push by CUDA IPC: it reads the weights where the learner packed them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from vllm.distributed.weight_transfer.base import WeightTransferUpdateInfo
from vllm.distributed.weight_transfer.ipc_engine import IPCWeightTransferEngine

from grpo.rollout.ipc import Opened
from grpo.rollout.load_recorder import LoadWeights, receive_recorded
from grpo.rollout.weights import TensorSpec, view_tensors


@dataclass
class IpcUpdateInfo(WeightTransferUpdateInfo):
    """One push, as vLLM hands it to a worker; see `ipc.make_ipc_update`."""

    exports: str
    plan: Sequence[Mapping[str, Any]]


class IpcEngine(IPCWeightTransferEngine):
    """vLLM's engine for CUDA IPC, but for what it reads.

    vLLM's opens an export of every tensor at every push, and torch keeps each of them on the
    learner's GPU until it was opened and released exactly once: never, where an engine died
    meanwhile. Here one buffer is opened once, and read at every push.
    """

    update_info_cls = IpcUpdateInfo
    loaded_checksum: str | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._opened = Opened()

    def start_weight_update(self) -> None:
        """As `NcclEngine.start_weight_update`."""
        self._parameter_names = {name for name, _ in self.model.named_parameters()}
        super().start_weight_update()

    @torch.no_grad()
    def receive_weights(self, update_info: IpcUpdateInfo) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Load the weights, with the checks of `receive_recorded`."""
        buffer = self._opened.find(update_info.exports, self.device)
        plan = [TensorSpec(**fields) for fields in update_info.plan]

        def receive() -> None:
            cast("LoadWeights", self.model.load_weights)(view_tensors(buffer, plan))

        self.loaded_checksum = receive_recorded(self, self._parameter_names, receive)

    def finish_weight_update(self) -> None:
        """As vLLM's; afterwards the learner may pack the next push into the buffer."""
        super().finish_weight_update()
        torch.accelerator.synchronize(self.device)

    def shutdown(self) -> None:
        """Let go of the learner's buffer."""
        super().shutdown()
        self._opened.close()
