"""Loads new weights beside those that a model served by vLLM on CPU computes with, then swaps them.

On CPU a linear layer computes with a packed copy of its weight, and the weight itself is emptied.
vLLM's own reload makes every layer anew, loads into that, and copies it back, with the model at a
stand. Here a second model of the same layers takes the weights, loaded by the model's own
`load_weights` and weight loaders, and packs each layer once it is complete, in memory that the
layers take in turns. All that is left for the pause is to hand over.
"""

from __future__ import annotations

import inspect
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
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

from grpo.rollout.load_recorder import LoadWeights, require_all

# All that these make after loading is the packed copy of a layer's weight.
PACKING_METHODS = (UnquantizedLinearMethod, UnquantizedEmbeddingMethod)


def can_load_beside(model: nn.Module) -> bool:
    """Whether every layer of a model is of a kind that this file knows.

    That is one whose parameters still have the form in which they were made, or a linear layer that
    was packed; and from which nothing else is derived once it is loaded.
    """
    return current_platform.is_cpu() and all(_is_known(layer) for layer in model.modules())


class SecondModel:
    """The layers of a model once more, with weights of their own.

    Args:
        model: One that can be loaded beside. It computes as before until `take_over`.
    """

    def __init__(self, model: nn.Module) -> None:
        self._second = copy_structure(model)
        self._pairs = list(zip(model.modules(), self._second.modules(), strict=True))
        self._names = {name for name, _ in model.named_parameters()}
        memory = TurnMemory()
        self._emptied = [
            EmptiedLayer(name, first, second, memory)
            for (name, first), (_, second) in zip(
                model.named_modules(), self._second.named_modules(), strict=True
            )
            if _is_emptied(first)
        ]

    @torch.no_grad()
    def load(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Take new weights, and pack them, while the model computes with the old ones.

        Args:
            weights: Names and tensors of the checkpoint, all of them. None is needed afterwards.

        Raises:
            ValueError: They are not one policy's whole weights.
        """
        for layer in self._emptied:
            layer.begin()
        loaded = cast("LoadWeights", self._second.load_weights)(weights)
        require_all(self._names, loaded)
        if missing := [layer.name for layer in self._emptied if not layer.complete]:
            raise ValueError(
                f"the push lacks weights for {len(missing)} layers: {', '.join(missing[:5])}"
            )
        packed = {layer.second for layer in self._emptied}
        owners: dict[int, nn.Module] = {}
        for layer in self._second.modules():
            if layer not in packed and _find_method(layer) is not None:
                owner = owners.setdefault(id(layer.weight), layer)
                if owner is layer:
                    pack(layer)
                else:
                    share_packed_weight(owner, layer)

    @torch.no_grad()
    def take_over(self, dtype: torch.dtype) -> None:
        """Have the model compute with what was loaded, between two of its steps.

        Args:
            dtype: Of the activations.
        """
        for first, second in self._pairs:
            for old, new in _pair_tensors(first, second):
                old.copy_(new)
            if (packed := vars(second).get("cpu_linear")) is not None:
                # The old one is freed when the next load packs the layer, which then has its pages.
                first.cpu_linear, second.cpu_linear = packed, first.cpu_linear
            if isinstance(first, Attention):
                first.process_weights_after_loading(dtype)


class EmptiedLayer:
    """A linear layer of which only the packed copy is left, while it is loaded.

    Args:
        name: The layer's.
        first: The layer that computes.
        second: Gets a weight of its old shape with no memory behind it, for each load.
        memory: Holds that weight from its first shard until it is packed.
    """

    def __init__(self, name: str, first: nn.Module, second: nn.Module, memory: TurnMemory) -> None:
        self.name = name
        self.second = second
        self.complete = False
        self._memory = memory
        self._num_loaded = 0
        self._weight: Any = make_hollow_weight(first)
        self._hollow: Tensor = self._weight.data
        # What vLLM noted down keeps the loader of its own reload, should there have been one.
        self._loader: Callable[..., object] = _get_original_loader(self._weight)
        self._signature = inspect.signature(self._loader)
        self._weight.weight_loader = self._load

    def begin(self) -> None:
        """Have a weight again, of which nothing is loaded."""
        if self._weight.data_ptr() != self._hollow.data_ptr():
            self._memory.give_back(self._weight.data)
        self.complete = False
        self._num_loaded = 0
        self._weight.data = self._hollow
        del self.second.weight
        self.second.register_parameter("weight", self._weight)

    def _load(self, *args: Any, **kwargs: Any) -> object:
        """Stands for the weight's own loader, which is given one shard after the other."""
        if self.complete:
            raise ValueError(f"the push has more than the whole weight of {self.name}")
        if self._weight.data_ptr() == self._hollow.data_ptr():
            self._weight.data = self._memory.take(self._hollow)
        arguments = self._signature.bind(*args, **kwargs)
        arguments.apply_defaults()
        num_loaded, answer = get_numel_loaded(self._loader, arguments)
        self._num_loaded += num_loaded
        if self._num_loaded >= get_tensor_load_numel(self._weight):
            self.complete = True
            pack(self.second)
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


def copy_structure(model: nn.Module) -> nn.Module:
    """Modules like a model's, with tensors of their own to load into, whose values are any.

    All else is shared. What was packed is not there yet, nor is what a checkpoint does not hold.
    """
    # Some are in several places.
    modules: dict[nn.Module, nn.Module] = {}
    tensors: dict[int, Tensor] = {}

    def copy_tensor(tensor: Tensor | None) -> Any:
        if tensor is None:
            return None
        if id(tensor) not in tensors:
            copied = tensors[id(tensor)] = torch.empty_like(tensor.data)
            copied.__class__ = tensor.__class__
            vars(copied).update(vars(tensor))
        return tensors[id(tensor)]

    def copy_module(module: nn.Module | None) -> Any:
        if module is None:
            return None
        if module not in modules:
            # Not by its class: some of vLLM's choose another one when they are called.
            copied = modules[module] = object.__new__(type(module))
            state = vars(copied)
            state.update(vars(module))
            state.pop("cpu_linear", None)
            state["_parameters"] = {n: copy_tensor(p) for n, p in state["_parameters"].items()}
            state["_modules"] = {n: copy_module(m) for n, m in state["_modules"].items()}
        return modules[module]

    return copy_module(model)


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


def _pair_tensors(first: nn.Module, second: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """A layer's own tensors that hold weights, each with its new values."""
    for name, old in first.named_parameters(recurse=False):
        if old.numel():
            yield old.data, getattr(second, name).data


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
