"""How the ranks of a learner share the work: whole copies under DDP, or shards under FSDP2."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from accelerate import Accelerator
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from grpo.learner.options import Sharding
from grpo.learner.policy import Policy
from grpo.learner.shards import gather_tensor


def distribute_policy(
    policy: Policy, accelerator: Accelerator, sharding: Sharding, *, trainable: bool
) -> nn.Module:
    """Give every rank its part of a policy, on its device.

    Args:
        policy: Whole, and the same on every rank.
        accelerator: Of this rank.
        sharding: `ddp` keeps a copy on each rank; `fsdp2` keeps a shard of each weight, and gathers
            one block at a time while it is computed with.
        trainable: Whether gradients are exchanged.

    Returns:
        What a training pass calls; the policy itself under `fsdp2`.
    """
    if sharding == "ddp":
        return accelerator.prepare_model(policy, evaluation_mode=not trainable)
    _shard(policy, accelerator, trainable=trainable)
    return policy


def _shard(policy: Policy, accelerator: Accelerator, *, trainable: bool) -> None:
    """Shard the weights over all ranks, in place.

    accelerate does so on GPUs only; torch does on every device that has collectives. Under bfloat16
    weights are gathered in it and gradients are summed in float32; the shards that the optimizer
    sees stay float32.
    """
    mesh = init_device_mesh(accelerator.device.type, (accelerator.num_processes,))
    precision = (
        MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        if accelerator.mixed_precision == "bf16"
        else MixedPrecisionPolicy()
    )
    for block in policy.blocks():
        fully_shard(block, mesh=mesh, mp_policy=precision)
    # Left to itself torch keeps what no block holds (embedding, norm, output layer) whole after a
    # forward pass, for the backward pass. Where none follows, it would stay whole for good.
    fully_shard(
        policy,
        mesh=mesh,
        mp_policy=precision,
        reshard_after_forward=None if trainable else True,
    )


def hold_exchange(wrapped: nn.Module, accelerator: Accelerator) -> AbstractContextManager[None]:
    """Put the exchange of gradients off, where that saves time and costs no memory.

    Under FSDP2 a gradient that waits is a whole one, so each micro-batch's is reduced at once.
    """
    if hasattr(wrapped, "no_sync"):
        return accelerator.no_sync(wrapped)
    return nullcontext()


def clip_gradient(module: nn.Module, limit: float) -> float:
    """Scale the gradient down to a length, over all parameters and ranks.

    Returns:
        Its length before.
    """
    norm = torch.nn.utils.clip_grad_norm_(module.parameters(), limit)
    return float(gather_tensor(norm))
