"""The part of a weight push that runs inside vLLM's workers: the weight-transfer engines.

`verigrad_host` is ours: it reads the weights from host memory and so works everywhere. The other
two are vLLM's own for NCCL and CUDA IPC, with a look at what is loaded; the latter is in
`vllm_ipc.py`. vLLM loads this module in each of its workers because `HostWeightExtension` is named
as `worker_extension_cls`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.distributed.weight_transfer.nccl_engine import (
    NCCLWeightTransferEngine,
    NCCLWeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)

from grpo.rollout.load_recorder import LoadWeights, receive_recorded, require_all
from grpo.rollout.segments import open_segment
from grpo.rollout.vllm_beside import SecondModel, can_load_beside
from grpo.rollout.vllm_ipc import IpcEngine
from grpo.rollout.weights import TensorSpec, unpack_tensors

HOST, NCCL, IPC = "verigrad_host", "verigrad_nccl", "verigrad_ipc"


@dataclass
class HostInitInfo(WeightTransferInitInfo):
    """Nothing has to be agreed on beforehand."""


@dataclass
class HostUpdateInfo(WeightTransferUpdateInfo):
    """One push, as vLLM hands it to a worker.

    Attributes:
        source: The bytes, where the worker shares the caller's process; otherwise the name of a
            shared memory segment.
        num_bytes: Their number.
        checksum: What they are known by.
        plan: Fields of each `TensorSpec`: vLLM's messages between processes carry plain values
            only.
    """

    source: np.ndarray | str
    num_bytes: int
    checksum: str
    plan: Sequence[Mapping[str, Any]]

    def open(self) -> np.ndarray:
        """The bytes, mapped for reading."""
        if isinstance(self.source, str):
            return open_segment(self.source, self.num_bytes)
        return self.source

    def specs(self) -> list[TensorSpec]:
        """Where each tensor lies."""
        return [TensorSpec(**fields) for fields in self.plan]


class HostWeightTransferEngine(WeightTransferEngine[HostInitInfo, HostUpdateInfo]):
    """Loads weights that lie in host memory, in the checkpoint's names and shapes."""

    init_info_cls = HostInitInfo
    update_info_cls = HostUpdateInfo

    def init_transfer_engine(self, init_info: HostInitInfo) -> None:  # noqa: ARG002 - vLLM's contract
        """Remember which parameters a push must cover.

        Read before the first push: while one is under way, tied parameters look like separate ones.
        """
        self._parameter_names = {name for name, _ in self.model.named_parameters()}
        self._second: SecondModel | None = None
        self._staged: str | None = None

    def stage(self, update_info: HostUpdateInfo) -> None:
        """Load one push beside the weights that are served, if the model is of a kind for that.

        Raises:
            ValueError: The push does not fit the model.
        """
        self._staged = None
        if can_load_beside(self.model):
            self._second = self._second or SecondModel(self.model)
            self._second.load(unpack_tensors(update_info.open(), update_info.specs()))
            self._staged = update_info.checksum

    def start_weight_update(self) -> None:
        """Give every layer something that `load_weights` can write to, if that is the model's own.

        On CPU, loading packs a linear layer's weight for oneDNN and leaves an empty parameter
        behind; on GPU, quantised layers are in the same position.
        """
        self._beside = can_load_beside(self.model)
        if not self._beside:
            initialize_layerwise_reload(self.model)

    @torch.no_grad()
    def receive_weights(self, update_info: HostUpdateInfo) -> None:
        """Load one push, if it is not staged.

        Raises:
            ValueError: The push left parameters of the model out.
        """
        if self._beside:
            if self._staged != update_info.checksum:
                self.stage(update_info)
            return
        # Layers hold on to views of the bytes until they are complete; keep the mapping until the
        # push is finished.
        self._buffer = update_info.open()
        load_weights = cast("LoadWeights", self.model.load_weights)
        loaded = load_weights(unpack_tensors(self._buffer, update_info.specs()))
        require_all(self._parameter_names, loaded)

    @torch.no_grad()
    def finish_weight_update(self) -> None:
        """Have the model compute with the new weights, the layers included that vLLM forgets."""
        if self._beside:
            assert self._second is not None, "a push was staged"
            self._second.take_over(cast("torch.dtype", self.model_config.dtype))
        else:
            finalize_layerwise_reload(self.model, self.model_config)
            for layer in find_layers_with_shared_weight(self.model):
                repack_for_cpu(layer)
        self._staged = self._buffer = None

    def shutdown(self) -> None:
        """Nothing is held between pushes."""


class NcclEngine(NCCLWeightTransferEngine):
    """vLLM's engine for NCCL, which knows afterwards what it has loaded."""

    loaded_checksum: str | None = None

    def start_weight_update(self) -> None:
        """As vLLM's; what a push must cover is read before, for the reason given above."""
        self._parameter_names = {name for name, _ in self.model.named_parameters()}
        super().start_weight_update()

    @torch.no_grad()
    def receive_weights(self, update_info: NCCLWeightTransferUpdateInfo) -> None:
        """As vLLM's, with the checks of `receive_recorded`."""
        receive = super().receive_weights
        self.loaded_checksum = receive_recorded(
            self, self._parameter_names, lambda: receive(update_info)
        )


def find_layers_with_shared_weight(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Layers whose `weight` is also another's: an embedding and the output head tied to it."""
    owners: dict[int, list[torch.nn.Module]] = defaultdict(list)
    for layer in model.modules():
        weight = dict(layer.named_parameters(recurse=False)).get("weight")
        if weight is not None and weight.numel() > 0:
            owners[id(weight)].append(layer)
    return [layer for layers in owners.values() if len(layers) > 1 for layer in layers]


def repack_for_cpu(layer: torch.nn.Module) -> None:
    """Make a layer compute with its current weight.

    A tied output head computes with a packed copy of its own, and a layerwise reload renews the
    embedding's copy only: the engine would go on sampling from the old head, with most greedy
    tokens unchanged.
    """
    if hasattr(layer, "cpu_linear"):
        quant_method: Any = layer.quant_method
        quant_method.process_weights_after_loading(layer)


class HostWeightExtension:
    """Methods that vLLM adds to its worker, callable by name through `collective_rpc`."""

    def stage_weights(self, update_info: dict[str, Any]) -> None:
        """Load a push beside the weights that are served, while the engine goes on."""
        engine: Any = self.weight_transfer_engine  # pyright: ignore[reportAttributeAccessIssue]
        engine.stage(engine.parse_update_info(update_info))

    def read_loaded_checksum(self) -> str | None:
        """The checksum of the last push that came from GPU to GPU."""
        engine: Any = self.weight_transfer_engine  # pyright: ignore[reportAttributeAccessIssue]
        return engine.loaded_checksum

    def read_weight_bytes(self) -> int:
        """Memory that this worker's part of the model takes."""
        runner: Any = self.model_runner  # pyright: ignore[reportAttributeAccessIssue]
        return int(runner.model_memory_usage)

    def remove_rendezvous_file(self) -> None:
        """Remove the file at which the workers of one host met; nobody reads it once all are up."""
        method: str = self.distributed_init_method  # pyright: ignore[reportAttributeAccessIssue]
        if method.startswith("file://"):
            Path(method.removeprefix("file://")).unlink(missing_ok=True)


WeightTransferEngineFactory.register_engine(HOST, HostWeightTransferEngine)
WeightTransferEngineFactory.register_engine(NCCL, NcclEngine)
WeightTransferEngineFactory.register_engine(IPC, IpcEngine)
