"""The policy that the KL term measures the distance to."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from accelerate import Accelerator
from torch import Tensor

from grpo.learner.adapters import adapters_off
from grpo.learner.options import LearnerOptions
from grpo.learner.parallel import distribute_policy, load_for_rank
from grpo.learner.policy import Policy
from grpo.learner.shards import own_part


class Reference(Protocol):
    """Scores tokens as `Policy` does, without a gradient."""

    def __call__(
        self,
        input_ids_B_T: Tensor,
        positions_N: Tensor,
        targets_N: Tensor,
        position_ids_B_T: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy at every chosen position."""
        ...

    def follow(self, policy: Policy, updates_done: int) -> None:
        """Take the policy's weights over, where that is due after so many updates."""
        ...

    def rest(self) -> None:
        """Give the device's memory back, where that is asked for, until the next call."""
        ...


def make_reference(
    options: LearnerOptions, policy: Policy, accelerator: Accelerator
) -> Reference | None:
    """Build what the options ask for: nothing where there is no KL term."""
    if options.beta == 0:
        return None
    if options.lora is not None:
        return AdapterBase(policy)
    return PolicyCopy(options, accelerator)


class AdapterBase:
    """The weights under the policy's adapters: a reference that takes no memory.

    Args:
        policy: With adapters.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    @torch.no_grad()
    def __call__(
        self,
        input_ids_B_T: Tensor,
        positions_N: Tensor,
        targets_N: Tensor,
        position_ids_B_T: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """As `Reference.__call__`."""
        with adapters_off(self._policy):
            return self._policy(input_ids_B_T, positions_N, targets_N, position_ids_B_T)

    def follow(self, policy: Policy, updates_done: int) -> None:
        """As `Reference.follow`: the base never changes."""

    def rest(self) -> None:
        """As `Reference.rest`: there is nothing to give back."""


class PolicyCopy:
    """A copy of the policy as it was at first; frozen, or following the policy from time to time.

    Args:
        options: The learner's.
        accelerator: Of this rank.
    """

    def __init__(self, options: LearnerOptions, accelerator: Accelerator) -> None:
        self.policy = load_for_rank(options, accelerator, trainable=False)
        distribute_policy(self.policy, accelerator, options.sharding, trainable=False)
        self._device = accelerator.device
        self._offload = options.reference_offload
        self._sync_steps = options.ref_model_sync_steps
        self._mixup_alpha = options.ref_model_mixup_alpha
        self._at_rest = False
        self.rest()

    @property
    def changes(self) -> bool:
        """Whether it is not the model that training started from any more, or will not be."""
        return self._sync_steps > 0

    @torch.no_grad()
    def __call__(
        self,
        input_ids_B_T: Tensor,
        positions_N: Tensor,
        targets_N: Tensor,
        position_ids_B_T: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """As `Reference.__call__`."""
        if self._at_rest:
            self.policy.to(self._device)
            self._at_rest = False
        return self.policy(input_ids_B_T, positions_N, targets_N, position_ids_B_T)

    @torch.no_grad()
    def follow(self, policy: Policy, updates_done: int) -> None:
        """As `Reference.follow`."""
        if not self.changes or updates_done % self._sync_steps:
            return
        pairs = zip(self.policy.parameters(), policy.parameters(), strict=True)
        for own, current in pairs:
            part: Any = own_part(own)
            part.lerp_(own_part(current).to(part.device), self._mixup_alpha)

    def rest(self) -> None:
        """As `Reference.rest`."""
        if self._offload:
            self.policy.to("cpu")
            self._at_rest = True
