"""A rank's state at one moment: copied while training waits, written while it goes on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from grpo.checkpoints import ADAPTER, LEARNER, POLICY
from grpo.learner.adapters import write_adapter
from grpo.learner.host_buffers import HostBuffers
from grpo.learner.policy import Policy
from grpo.learner.saving import save_policy
from grpo.learner.shards import gather_tensor

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What a rank writes into a checkpoint; every tensor is whole and a copy in the host's memory.

    Attributes:
        random: State of its generators.
        weights: Under Hugging Face's names, adapters merged; empty on all ranks but the first, as
            is all that follows.
        adapter: Weights of the adapters.
        reference: Weights of a reference that is not the first model any more.
        training: The optimizer's state by weight, and the counters.
    """

    random: Mapping[str, Any]
    weights: Tensors = field(default_factory=dict[str, Tensor])
    adapter: Tensors = field(default_factory=dict[str, Tensor])
    reference: Tensors = field(default_factory=dict[str, Tensor])
    training: Mapping[str, Any] = field(default_factory=dict[str, Any])


def copy_whole(
    named: Iterable[tuple[str, Tensor]], buffers: HostBuffers, kind: str, *, keep: bool
) -> dict[str, Tensor]:
    """Copy tensors to the host's memory, gathering them one at a time where they are sharded.

    Args:
        named: Names and tensors.
        buffers: Take the copies.
        kind: Told apart from others of the same name there.
        keep: Whether this rank wants them; otherwise it only gives its shards.
    """
    kept: dict[str, Tensor] = {}
    for name, tensor in named:
        whole = gather_tensor(tensor.detach())
        if keep:
            kept[name] = buffers.copy(f"{kind}/{name}", whole)
    return kept


def name_optimized(policy: Policy, optimizer: torch.optim.Optimizer) -> list[str]:
    """Names of the weights that an optimizer works on, in its own order."""
    names = {id(weight): name for name, weight in policy.named_parameters()}
    return [names[id(weight)] for group in optimizer.param_groups for weight in group["params"]]


def copy_optimizer(
    policy: Policy, optimizer: torch.optim.Optimizer, buffers: HostBuffers, *, keep: bool
) -> dict[str, dict[str, Any]]:
    """The optimizer's state by weight, each tensor whole."""
    states = optimizer.state_dict()["state"]
    copied: dict[str, dict[str, Any]] = {}
    for index, name in enumerate(name_optimized(policy, optimizer)):
        values = states.get(index, {})
        tensors = ((key, value) for key, value in values.items() if isinstance(value, Tensor))
        rest = {key: value for key, value in values.items() if not isinstance(value, Tensor)}
        copied[name] = copy_whole(tensors, buffers, name, keep=keep) | rest
    return copied


def write_snapshot(
    snapshot: Snapshot, folder: Path, *, policy: Policy, source: str, rank: int
) -> None:
    """Write a rank's part of a checkpoint.

    Args:
        snapshot: Of the rank.
        folder: As `grpo.checkpoints.write_checkpoint` gives it.
        policy: Tells the kind of model and of adapter; its weights are not looked at.
        source: Folder or hub id that training started from.
        rank: Of the learner.
    """
    own = folder / LEARNER
    own.mkdir(parents=True, exist_ok=True)
    torch.save(dict(snapshot.random), own / f"random-{rank}.pt")
    if not snapshot.training:
        return
    torch.save(dict(snapshot.training), own / "optimizer.pt")
    save_policy(policy.model, snapshot.weights, source, folder / POLICY)
    if snapshot.adapter:
        write_adapter(policy.model, snapshot.adapter, source, folder / ADAPTER)
    if snapshot.reference:
        save_file(dict(snapshot.reference), own / "reference.safetensors")
