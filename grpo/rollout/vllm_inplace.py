"""Loads weights into a model that vLLM serves on CPU, and packs each layer once it is complete.

On CPU a linear layer computes with a packed copy of its weight, and the weight itself is emptied.
vLLM's own reload makes every layer anew, loads into that, and copies it back. Here such a weight
exists again only from its first shard until it is packed, in memory that the layers take in turns;
all else is written where it lies. The model's own `load_weights` and weight loaders do the loading.
"""

from __future__ import annotations

import inspect
from bisect import bisect_left
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from vllm.model_executor.layers.attention import Attention, is_deferred_attention_layer
from vllm.model_executor.layers.linear import UnquantizedLinearMethod
from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod
from vllm.model_executor.model_loader.reload.layerwise import (
    _get_original_loader,
    get_layerwise_info,
)
from vllm.model_executor.model_loader.reload.meta import get_numel_loaded
from vllm.model_executor.model_loader.reload.sanitize import restore_layer_refs
from vllm.model_executor.model_loader.reload.utils import get_tensor_load_numel
from vllm.platforms import current_platform

# All that these make after loading is the packed copy of a layer's weight.
PACKING_METHODS = (UnquantizedLinearMethod, UnquantizedEmbeddingMethod)


def can_load_in_place(model: nn.Module) -> bool:
    """Whether every layer of a model is of a kind that this file knows.

    That is one whose parameters still have the form in which they were made, or a linear layer that
    was packed; and from which nothing else is derived once it is loaded.
    """
    return current_platform.is_cpu() and all(_is_known(layer) for layer in model.modules())


class InPlaceLoad:
    """One load of new weights, from the time when `load_weights` may be called until `finish`.

    Args:
        model: One that can be loaded in place.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        memory = TurnMemory()
        self._emptied = {
            name: EmptiedLayer(name, layer, memory)
            for name, layer in model.named_modules()
            if _is_emptied(layer)
        }

    def finish(self, dtype: torch.dtype) -> None:
        """Have every layer compute with the new weights.

        Args:
            dtype: Of the activations.

        Raises:
            ValueError: A layer has not got all of its weight.
        """
        if missing := [name for name, layer in self._emptied.items() if not layer.complete]:
            raise ValueError(
                f"the push lacks weights for {len(missing)} layers: {', '.join(missing[:5])}"
            )
        packed = {layer.layer for layer in self._emptied.values()}
        owners: dict[int, nn.Module] = {}
        for layer in self._model.modules():
            if isinstance(layer, Attention):
                layer.process_weights_after_loading(dtype)
            elif layer not in packed and _find_method(layer) is not None:
                owner = owners.setdefault(id(layer.weight), layer)
                if owner is layer:
                    pack(layer)
                else:
                    share_packed_weight(owner, layer)


class EmptiedLayer:
    """A linear layer of which only the packed copy is left, while it is loaded.

    Args:
        name: The layer's.
        layer: Gets a weight of its old shape with no memory behind it.
        memory: Holds that weight from its first shard until it is packed.
    """

    def __init__(self, name: str, layer: nn.Module, memory: TurnMemory) -> None:
        self.layer = layer
        self._name = name
        self.complete = False
        self._memory = memory
        self._num_loaded = 0
        self._weight: Any = make_hollow_weight(layer)
        self._hollow: Tensor = self._weight.data
        # What vLLM noted down keeps the loader of its own reload, should there have been one.
        self._loader: Callable[..., object] = _get_original_loader(self._weight)
        self._signature = inspect.signature(self._loader)
        self._weight.weight_loader = self._load
        del layer.weight
        layer.register_parameter("weight", self._weight)

    def _load(self, *args: Any, **kwargs: Any) -> object:
        """Stands for the weight's own loader, which is given one shard after the other."""
        if self.complete:
            raise ValueError(f"the push has more than the whole weight of {self._name}")
        if self._weight.data_ptr() == self._hollow.data_ptr():
            self._weight.data = self._memory.take(self._hollow)
        arguments = self._signature.bind(*args, **kwargs)
        arguments.apply_defaults()
        num_loaded, answer = get_numel_loaded(self._loader, arguments)
        self._num_loaded += num_loaded
        if self._num_loaded >= get_tensor_load_numel(self._weight):
            self.complete = True
            pack(self.layer)
            self._memory.give_back(self._weight.data)
            self._weight.data = self._hollow
        return answer


class TurnMemory:
    """Memory that is taken in turns, because pages that are new cost more than what fills them."""

    def __init__(self) -> None:
        self._free: list[Tensor] = []

    def take(self, like: Tensor) -> Tensor:
        """A tensor of the same shape and type, of whatever values."""
        self._free.sort(key=lambda memory: memory.nbytes)
        place = bisect_left(self._free, like.nbytes, key=lambda memory: memory.nbytes)
        if place < len(self._free):
            taken = self._free.pop(place)
        else:
            # What is too small now makes room.
            self._free.clear()
            taken = torch.empty(like.nbytes, dtype=torch.uint8)
        return taken[: like.nbytes].view(like.dtype).view(like.shape)

    def give_back(self, taken: Tensor) -> None:
        """Let others have it."""
        whole = torch.empty(0, dtype=torch.uint8).set_(taken.untyped_storage())
        self._free.append(whole)


def make_hollow_weight(layer: nn.Module) -> Tensor:
    """The weight that a linear layer was made with, loader and all, with one element's memory."""
    made = get_layerwise_info(layer).restore_metadata[0]["weight"]
    weight = torch.empty(1, dtype=made.dtype).expand(made.shape)
    weight.__class__ = made.__class__
    vars(weight).update(vars(made))
    return restore_layer_refs(weight, layer)


def pack(layer: nn.Module) -> None:
    """Make a layer compute with its present weight."""
    method = _find_method(layer)
    assert method is not None, "only layers with one are packed"
    method.process_weights_after_loading(layer)


def share_packed_weight(owner: nn.Module, layer: nn.Module) -> None:
    """Have a layer whose weight is another's compute with the other's packed copy too.

    vLLM gives a tied output head a copy of its own, which its reload then leaves as it was.
    """
    layer.cpu_linear = owner.cpu_linear


def _find_method(layer: nn.Module) -> UnquantizedLinearMethod | UnquantizedEmbeddingMethod | None:
    method = getattr(layer, "quant_method", None)
    # Not a subclass: what it makes of a weight would be its own affair.
    return cast("Any", method) if type(method) in PACKING_METHODS else None


def _is_emptied(layer: nn.Module) -> bool:
    if type(_find_method(layer)) is not UnquantizedLinearMethod:
        return False
    made = get_layerwise_info(layer).restore_metadata[0].get("weight")
    weight = layer.weight
    assert isinstance(weight, Tensor)
    return made is not None and made.numel() > 0 and weight.numel() == 0


def _is_known(layer: nn.Module) -> bool:
    if getattr(layer, "quant_method", None) is not None and _find_method(layer) is None:
        return False
    if is_deferred_attention_layer(layer) and not isinstance(layer, Attention):
        return False
    made = get_layerwise_info(layer).restore_metadata[0]
    present = dict(layer.named_parameters(recurse=False))
    if _is_emptied(layer):
        present["weight"] = cast("Any", made["weight"])
    return made.keys() <= present.keys() and all(
        (made[name].shape, made[name].dtype) == (tensor.shape, tensor.dtype)
        if name in made
        # A bias is made after vLLM notes down what there is.
        else tensor.numel() > 0
        for name, tensor in present.items()
    )
