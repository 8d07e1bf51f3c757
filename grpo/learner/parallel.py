"""How the ranks of a learner share the work: whole copies under DDP, or shards under FSDP2."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from grpo.learner.options import LearnerOptions, Sharding
from grpo.learner.policy import Policy, load_policy
from grpo.learner.shards import gather_tensor, own_part, scatter


def load_for_rank(options: LearnerOptions, accelerator: Accelerator, *, trainable: bool) -> Policy:
    """Load what `distribute_policy` makes this rank's part of a policy from.

    Under `fsdp2` only the first rank has the weights: whole copies for all of them would take more
    of the host's memory than the shards take of the devices'.
    """
    empty = options.sharding == "fsdp2" and not accelerator.is_main_process
    return load_policy(options, trainable=trainable, empty=empty)


def distribute_policy(
    policy: Policy, accelerator: Accelerator, sharding: Sharding, *, trainable: bool
) -> nn.Module:
    """Give every rank its part of a policy, on its device.

    Args:
        policy: As `load_for_rank` gives it.
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
    whole = dict(policy.state_dict(keep_vars=True)) if accelerator.is_main_process else {}
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
    if not accelerator.is_main_process:
        _allocate(policy, accelerator.device)
    _hand_out(policy, whole)


def _allocate(policy: Policy, device: torch.device) -> None:
    """Make room for shards that have none yet; what follows from the configuration stays."""
    buffers = {name: buffer.clone() for name, buffer in policy.named_buffers()}
    first: dict[int, str] = {}
    ties = [
        (name, first.setdefault(id(weight), name))
        for name, weight in policy.named_parameters(remove_duplicate=False)
    ]
    policy.to_empty(device=device)
    for name, buffer in policy.named_buffers():
        buffer.copy_(buffers[name])
    for name, other in ties:
        if name != other:
            module, _, attribute = name.rpartition(".")
            setattr(policy.get_submodule(module), attribute, policy.get_parameter(other))


@torch.no_grad()
def _hand_out(policy: Policy, whole: Mapping[str, Tensor]) -> None:
    """Give every rank its shards of the first one's weights, one weight at a time."""
    for name, weight in policy.named_parameters():
        own_part(weight).copy_(own_part(scatter(whole.get(name), weight)))


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
