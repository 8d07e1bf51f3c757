"""Low-rank adapters: put into a model, switched off for its reference, given to its engines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any, cast

import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.lora import LoraLayer
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from grpo.learner.adapted_layers import choose_layers
from grpo.learner.options import LoraOptions
from grpo.learner.shards import gather_tensor

_BASE = ".base_layer"
_ADAPTER = "default"


def add_adapters(model: PreTrainedModel, options: LoraOptions) -> None:
    """Put an adapter beside every chosen linear layer, and freeze everything else.

    At first an adapter adds nothing: one of its two factors is 0.

    Raises:
        UserError: A pattern matches no linear layer.
    """
    config = LoraConfig(
        r=options.r,
        # peft's hint says int; it only ever divides it.
        lora_alpha=options.alpha,  # pyright: ignore[reportArgumentType]
        target_modules=choose_layers(model, options.target_modules),
        use_rslora=options.use_rslora,
    )
    inject_adapter_in_model(config, model, adapter_name=_ADAPTER)


def is_adapter(name: str) -> bool:
    """Whether a weight of this name belongs to an adapter."""
    return ".lora_" in name


def has_adapter(name: str) -> bool:
    """Whether a weight of this name has an adapter beside it."""
    return name.endswith(f"{_BASE}.weight")


def base_name(name: str) -> str:
    """What a weight is called in the model without adapters."""
    return name.replace(_BASE, "")


def stored_name(name: str) -> str:
    """What an adapter's weight is called in a file that peft reads."""
    return f"base_model.model.{name.replace(f'.{_ADAPTER}', '')}"


def write_adapter(
    model: PreTrainedModel, weights: Mapping[str, Tensor], source: str, folder: Path
) -> None:
    """Write adapters so that `PeftModel.from_pretrained` reads them.

    Args:
        model: With such adapters.
        weights: Whole, under the names of `state_dict`.
        source: Folder or hub id of the model under them.
        folder: Where they go.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config: LoraConfig = copy(cast("Any", model).peft_config[_ADAPTER])
    config.base_model_name_or_path = source
    config.save_pretrained(str(folder))
    stored = {stored_name(name): tensor for name, tensor in weights.items()}
    save_file(stored, folder / "adapter_model.safetensors", metadata={"format": "pt"})


@contextmanager
def adapters_off(model: nn.Module) -> Iterator[None]:
    """Have a model compute as it did before it was trained."""
    layers = [module for module in model.modules() if isinstance(module, LoraLayer)]
    for layer in layers:
        _switch(layer, on=False)
    try:
        yield
    finally:
        for layer in layers:
            _switch(layer, on=True)


def merge_weight(model: nn.Module, name: str) -> Tensor:
    """The whole weight that does what a weight and its adapter do together.

    Where weights are sharded all ranks have to call it at the same place.

    Args:
        model: With adapters.
        name: Of a weight with an adapter, as `has_adapter` knows it.
    """
    layer: Any = model.get_submodule(name.removesuffix(f"{_BASE}.weight"))
    whole, low, high = (
        gather_tensor(part.weight.detach())
        for part in (layer.base_layer, layer.lora_A[_ADAPTER], layer.lora_B[_ADAPTER])
    )
    return torch.addmm(whole, high, low, alpha=layer.scaling[_ADAPTER])


def lay_out_adapters(model: PreTrainedModel, dtype: torch.dtype) -> list[tuple[str, Tensor]]:
    """List every adapter's two factors, without their values, under the names that peft stores."""
    return [
        (stored_name(name), torch.empty(tensor.shape, dtype=dtype, device="meta"))
        for name, tensor in model.state_dict(keep_vars=True).items()
        if is_adapter(name)
    ]


def gather_adapters(model: PreTrainedModel, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of `lay_out_adapters`, each gathered from its shards when its turn comes.

    The second factor has the adapter's scale in it, so that what is to be added to a weight is
    `B @ A` and nothing else has to be known. Where weights are sharded every rank has to go through
    all of them.
    """
    for name, tensor in model.state_dict(keep_vars=True).items():
        if not is_adapter(name):
            continue
        whole = gather_tensor(tensor.detach())
        stem, is_high, _ = name.partition(".lora_B.")
        if is_high:
            layer: Any = model.get_submodule(stem)
            whole = whole * layer.scaling[_ADAPTER]
        yield stored_name(name), whole.to(dtype)


def _switch(layer: Any, *, on: bool) -> None:
    # Not peft's own enable_adapters(): that also sets requires_grad, which DDP and FSDP2 have taken
    # note of and do not expect to change.
    layer._disable_adapters = not on  # noqa: SLF001
