"""The part of an adapter push that runs inside vLLM's workers.

The model under the adapter is loaded once. vLLM computes `B (A x)` beside its layers, and a push
replaces A and B of its one adapter in place. vLLM's own way in is a folder on disk; tensors that
are in memory are given to its manager of adapters directly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from vllm.lora.layers import LoRAMapping
from vllm.lora.lora_model import LoRAModel
from vllm.lora.peft_helper import PEFTHelper
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU
from vllm.lora.utils import parse_fine_tuned_lora_name

from grpo.rollout.options import ADAPTER_ID
from grpo.rollout.vllm_transfer import HostUpdateInfo, HostWeightExtension
from grpo.rollout.weights import unpack_tensors


class AdapterExtension(HostWeightExtension):
    """Methods that vLLM adds to its worker, callable by name through `collective_rpc`."""

    def begin_adapter(self, layers: Sequence[str]) -> list[str]:
        """Serve an adapter of zeros.

        Args:
            layers: Those that every push has to cover, by their names in the checkpoint.

        Returns:
            Those among them that vLLM does not compute an adapter beside.
        """
        manager = self._adapter_manager
        self._adapted = {self._parse(f"{layer}.lora_A.weight")[0] for layer in layers}
        if torch.device(manager.device).type == "cpu":
            compute_with(OneAdapter(), manager)
        self._serve(manager.create_dummy_lora(ADAPTER_ID, rank=1, embedding_modules={}))
        return sorted(self._adapted - list_parts(manager))

    @torch.no_grad()
    def load_adapter(self, update: dict[str, Any]) -> None:
        """Replace the adapter by a pushed one.

        Raises:
            ValueError: The push left adapters out, or has others.
        """
        info = HostUpdateInfo(**update)
        # The sender may reuse the buffer, which vLLM would look into again.
        tensors = {name: t.clone() for name, t in unpack_tensors(info.open(), info.specs())}
        factors = {self._parse(name) for name in tensors}
        wanted = {(layer, is_low) for layer in self._adapted for is_low in (True, False)}
        if odd := sorted(layer for layer, _ in factors ^ wanted):
            raise ValueError(
                f"The push leaves adapters out or has others, such as that of {odd[0]}."
            )
        rank = next(t.shape[0] for name, t in tensors.items() if ".lora_A." in name)
        self._serve(
            LoRAModel.from_lora_tensors(
                ADAPTER_ID,
                tensors,
                # The scale is in the tensors.
                PEFTHelper(r=rank, lora_alpha=rank, target_modules=[]),
                device="cpu",
                dtype=self._adapter_manager.lora_config.lora_dtype,
                weights_mapper=self._renaming,
            )
        )

    def _serve(self, adapter: LoRAModel) -> None:
        manager = self._adapter_manager
        manager.remove_adapter(ADAPTER_ID)
        manager.add_adapter(adapter)
        manager.activate_adapter(ADAPTER_ID)

    def _parse(self, tensor_name: str) -> tuple[str, bool]:
        """The layer that a factor belongs to, as vLLM calls it, and whether it is A."""
        return parse_fine_tuned_lora_name(tensor_name, self._renaming)

    @property
    def _renaming(self) -> Any:
        mapper = getattr(self._adapter_manager.model, "hf_to_vllm_mapper", None)
        return mapper.get_rename_mapper() if mapper is not None else None

    @property
    def _adapter_manager(self) -> Any:
        runner: Any = self.model_runner  # pyright: ignore[reportAttributeAccessIssue]
        return runner.lora_manager._adapter_manager  # noqa: SLF001 - the public one reads folders


def list_parts(manager: Any) -> set[str]:
    """Layers that have an adapter, those that vLLM computes as one by their own names."""
    parts: set[str] = set()
    for name in manager.modules:
        parent, _, leaf = name.rpartition(".")
        packed = manager.packed_modules_mapping.get(leaf, [leaf])
        parts |= {f"{parent}.{part}" if parent else part for part in packed}
    return parts


class OneAdapter(PunicaWrapperCPU):
    """Computes the one adapter that every request of an engine refers to.

    vLLM's own code for CPU can serve another adapter to each token, and to that end copies both
    factors once for every token of a batch.
    """

    def __init__(self) -> None:
        """Nothing is kept: there is nothing to choose from."""

    def update_metadata(self, mapping: LoRAMapping, *_: Any, **__: Any) -> None:
        """As vLLM's, which is told here which tokens have which adapter."""
        assert set(mapping.prompt_mapping) <= {ADAPTER_ID}, "a request without the adapter"

    def add_lora_linear(  # noqa: PLR0917 - vLLM's contract
        self,
        y: torch.Tensor,
        x: torch.Tensor,
        lora_a_stacked: tuple[torch.Tensor, ...],
        lora_b_stacked: tuple[torch.Tensor, ...],
        scale: float,
        output_slices: tuple[int, ...],
        **_: Any,
    ) -> None:
        """Add to a layer's output what the adapter makes of its input.

        Args:
            y: [tokens, outputs] of the layer, which may be several computed as one.
            x: [tokens, inputs].
            lora_a_stacked: For each of them A, [1, 1, rank, inputs].
            lora_b_stacked: For each of them B, [1, 1, outputs, rank].
            scale: Of what is added.
            output_slices: Outputs of each of them.
            _: Of no use here.
        """
        start = 0
        for low, high, width in zip(lora_a_stacked, lora_b_stacked, output_slices, strict=True):
            y[:, start : start + width].addmm_(x @ low[0, 0].T, high[0, 0].T, alpha=scale)
            start += width


def compute_with(wrapper: OneAdapter, manager: Any) -> None:
    """Have a manager's layers compute their adapters in this way."""
    manager.punica_wrapper_mapping = dict.fromkeys(manager.punica_wrapper_mapping, wrapper)
    for module in manager.modules.values():
        module.set_mapping(wrapper)
