"""What engines are given: whole weights under Hugging Face's names, or adapters under peft's."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from transformers import PreTrainedModel

from grpo.learner.adapters import (
    base_name,
    gather_adapters,
    has_adapter,
    is_adapter,
    lay_out_adapters,
    merge_weight,
)
from grpo.learner.options import LearnerOptions, Precision
from grpo.learner.shards import gather_tensor


def lay_out_push(model: PreTrainedModel, options: LearnerOptions) -> list[tuple[str, Tensor]]:
    """List what engines are given, all weights or the adapters alone, without its values."""
    if options.gives_adapters:
        return lay_out_adapters(model, _served_dtype(options.served_precision))
    return lay_out_weights(model, options.served_precision)


def gather_push(model: PreTrainedModel, options: LearnerOptions) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of `lay_out_push`, each gathered from its shards when its turn comes."""
    if options.gives_adapters:
        return gather_adapters(model, _served_dtype(options.served_precision))
    return gather_weights(model, options.served_precision)


def lay_out_weights(model: PreTrainedModel, precision: Precision) -> list[tuple[str, Tensor]]:
    """List every weight once, without its values: tensors of the device `meta`.

    Args:
        model: The policy's model, sharded or not.
        precision: What they are served in, float64 as float32.
    """
    dtype = _served_dtype(precision)
    return [
        (base_name(name), torch.empty(tensor.shape, dtype=dtype, device="meta"))
        for name, tensor in _list_weights(model)
    ]


def gather_weights(model: PreTrainedModel, precision: Precision) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights of `lay_out_weights`, each gathered from its shards when its turn comes.

    An adapter is merged into the weight that it belongs to. Where weights are sharded every rank
    has to go through all of them. The tensors may share memory with the policy: they are to be read
    before the next update.
    """
    dtype = _served_dtype(precision)
    for name, tensor in _list_weights(model):
        if has_adapter(name):
            yield base_name(name), merge_weight(model, name).to(dtype)
        else:
            # Cast before they are gathered: half the bytes travel.
            yield base_name(name), gather_tensor(tensor.detach().to(dtype))


def _served_dtype(precision: Precision) -> torch.dtype:
    return torch.bfloat16 if precision == "bfloat16" else torch.float32


def _list_weights(model: PreTrainedModel) -> list[tuple[str, Tensor]]:
    """Weights and saved buffers; one that is tied to another is listed under its first name only.

    Tied weights are one object. Their addresses would not tell: an empty shard has none.
    """
    named = model.state_dict(keep_vars=True)
    first = {id(tensor): name for name, tensor in reversed(named.items())}
    return [
        (name, tensor)
        for name, tensor in named.items()
        if first[id(tensor)] == name and not is_adapter(name)
    ]
