"""Puts what a checkpoint holds back into a rank, however many ranks wrote it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from grpo.checkpoints import ADAPTER, LEARNER, POLICY
from grpo.learner.adapters import is_adapter, stored_name
from grpo.learner.policy import Policy
from grpo.learner.shards import own_part, take_share
from grpo.learner.snapshot import name_optimized
from verifiers.errors import UserError


@torch.no_grad()
def restore_policy(policy: Policy, folder: Path) -> None:
    """Read the weights of a checkpoint into a policy that already exists, sharded or not.

    A policy with adapters takes those only: the model under them is the one it was loaded from.

    Raises:
        UserError: The checkpoint is of another model, or trained other weights.
    """
    adapters = {
        stored_name(name): weight
        for name, weight in policy.model.state_dict().items()
        if is_adapter(name)
    }
    if bool(adapters) != (folder / ADAPTER).is_dir():
        has, trains = ("no adapters", "some (lora_r > 0)")[:: 1 if adapters else -1]
        raise UserError(
            f"The checkpoint {folder} has {has.replace(' (lora_r > 0)', '')}, but the "
            f"configuration trains {trains}. Set lora_r as it was in the run that wrote it, or "
            "start a new run from its policy/ with model=FOLDER."
        )
    if adapters:
        _read_into(adapters, folder / ADAPTER, folder)
    else:
        _read_into(policy.model.state_dict(), folder / POLICY, folder)


@torch.no_grad()
def restore_reference(reference: nn.Module, folder: Path) -> None:
    """Read a reference that has changed since training began."""
    _read_into(dict(reference.named_parameters()), folder / LEARNER, folder)


def restore_optimizer(
    policy: Policy, optimizer: torch.optim.Optimizer, saved: Mapping[str, Any], folder: Path
) -> None:
    """Give the optimizer its state back; its settings stay the configuration's.

    Raises:
        UserError: The checkpoint trained other weights.
    """
    names = name_optimized(policy, optimizer)
    if set(names) != set(saved):
        raise UserError(
            f"The checkpoint {folder} trained other weights than the configuration does: "
            f"{_list(set(saved) - set(names), 'only in the checkpoint')}"
            f"{_list(set(names) - set(saved), 'only in the configuration')}"
            "set lora_target_modules and learner.frozen_layers as they were."
        )
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    state = {
        index: {
            key: take_share(value, weight).clone()  # out of the file, which may be deleted
            if isinstance(value, Tensor) and value.shape == weight.shape
            else value
            for key, value in saved[name].items()
        }
        for index, (name, weight) in enumerate(zip(names, weights, strict=True))
        if saved[name]
    }
    settings = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": settings})


def _read_into(own: Mapping[str, Tensor], files: Path, checkpoint: Path) -> None:
    """Copy the tensors of safetensors files into those of the same name, one at a time."""
    found: set[str] = set()
    for path in sorted(files.glob("*.safetensors")):
        with safe_open(str(path), framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - not a mapping
                found.add(name)
                if name not in own or list(own[name].shape) != tensors.get_slice(name).get_shape():
                    raise UserError(_describe_mismatch(checkpoint, [name], ()))
                whole = tensors.get_tensor(name).to(own[name].dtype)
                own_part(own[name]).copy_(own_part(take_share(whole, own[name])))
    missing = _find_untied(own, found)
    if missing:
        raise UserError(_describe_mismatch(checkpoint, (), missing))


def _find_untied(own: Mapping[str, Tensor], found: set[str]) -> list[str]:
    """Weights that were not read, neither under their own name nor as one that they are tied to."""
    read = {own_part(own[name]).data_ptr() for name in found}
    return [n for n in own if n not in found and own_part(own[n]).data_ptr() not in read]


def _describe_mismatch(folder: Path, wrong: Iterable[str], missing: Iterable[str]) -> str:
    return (
        f"The checkpoint {folder} is of another model than the configuration's: "
        f"{_list(missing, 'not in the checkpoint')}"
        f"{_list(wrong, 'of no such name or shape in the model')}"
        "resume with the model that the run was started from, or start a new run."
    )


def _list(names: Iterable[str], what: str) -> str:
    names = sorted(names)
    if not names:
        return ""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more} {what}; "
