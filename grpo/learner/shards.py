"""Whole tensors from shards, and shards from whole tensors."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor


def gather_tensor(tensor: Tensor) -> Tensor:
    """The whole of a tensor, on every rank; all ranks have to call it at the same place."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def take_share(whole: Tensor, like: Tensor) -> Tensor:
    """The part of a whole tensor that a rank holds of it; no rank hears of another's.

    Args:
        whole: The same on every rank.
        like: Tells how it is sharded, if it is.
    """
    if not isinstance(like, DTensor):
        return whole.to(like.device)
    # The stub knows no None, which means: every rank has the values, send nothing.
    source: Any = None
    return cast(
        "Tensor",
        distribute_tensor(
            whole.to(like.device), like.device_mesh, like.placements, src_data_rank=source
        ),
    )


def scatter(whole: Tensor | None, like: Tensor) -> Tensor:
    """The part of a whole tensor that a rank holds of it; all ranks have to call it together.

    Args:
        whole: On the first rank, its values; None on the others.
        like: A sharded tensor of the same shape.
    """
    assert isinstance(like, DTensor), "a tensor that is whole has no shares"
    device = like.to_local().device
    if whole is None:
        given = torch.empty(like.shape, dtype=like.dtype, device=device)
    else:
        given = whole.detach().to(device)
    return distribute_tensor(given, like.device_mesh, like.placements, src_data_rank=0)


def own_part(tensor: Tensor) -> Tensor:
    """What this rank holds of a tensor: a view that can be written to."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
