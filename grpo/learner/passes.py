"""Passes of the models over micro-batches: scored before the first update, and learned from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from grpo.learner import invariants
from grpo.learner.batching import MicroBatch
from grpo.learner.guard import Guard
from grpo.learner.layout import MicroBatchTensors, build_tensors
from grpo.learner.microbatch import TokenScores
from grpo.learner.options import LearnerOptions
from grpo.learner.packing import packs_samples
from grpo.learner.policy import Policy
from grpo.learner.reference import Reference
from grpo.values import TrainSample


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A micro-batch with what was found out about it before the first update on its batch.

    Attributes:
        samples: In its order.
        tensors: As the model takes it.
        start_logprobs: Under the policy before that update, shape N; None where one pass gives
            both them and the gradient, because there is one update only.
        reference_logprobs: Under the reference, shape N; None where there is none, or not yet.
    """

    samples: tuple[TrainSample, ...]
    tensors: MicroBatchTensors
    start_logprobs: Tensor | None = None
    reference_logprobs: Tensor | None = None


class Passes:
    """Runs policy and reference over micro-batches, and checks what must hold of the results.

    Args:
        policy: The bare policy.
        trained: The same as gradients are taken through, wrapped for its ranks.
        reference: Where the KL term has one.
        accelerator: Knows the device, and opens the precision that the models compute in.
        guard: Decides what a breach leads to.
        options: Of the learner.
    """

    def __init__(
        self,
        policy: Policy,
        trained: Any,
        reference: Reference | None,
        *,
        accelerator: Accelerator,
        guard: Guard,
        options: LearnerOptions,
    ) -> None:
        self._policy = policy
        self._trained = trained
        self._reference = reference
        self._accelerator = accelerator
        self._guard = guard
        self._options = options
        # A learner that hangs is known by its standing still.
        self.num_done = 0

    def prepare(self, microbatch: MicroBatch) -> Prepared:
        """Lay a micro-batch out, without a pass of any model."""
        samples = tuple(member.sample for member in microbatch)
        tensors = build_tensors(
            microbatch, self._accelerator.device, packed=packs_samples(self._options)
        )
        invariants.check_loss_positions(tensors.sequence, samples)
        return Prepared(samples=samples, tensors=tensors)

    def score(self, microbatch: MicroBatch, *, policy_version: int, untrained: bool) -> Prepared:
        """Find out what policy and reference say before the first update on a batch.

        The layout is the one that is learned from, so that a difference between the two passes is
        none of padding's.

        Args:
            microbatch: Of this rank.
            policy_version: The policy's; samples of the same one are checked against the sampler.
            untrained: Whether the policy is still the reference.
        """
        bare = self.prepare(microbatch)
        with torch.no_grad(), self._accelerator.autocast():
            logprobs, _ = self._policy(*_chosen(bare.tensors))
        self.num_done += 1
        found = Prepared(
            samples=bare.samples,
            tensors=bare.tensors,
            start_logprobs=logprobs,
            reference_logprobs=self._ask_reference(bare.tensors),
        )
        self._check_start(found, logprobs, found.reference_logprobs, policy_version, untrained)
        return found

    def learn(
        self, found: Prepared, *, first: bool, policy_version: int, untrained: bool
    ) -> TokenScores:
        """Run the policy with gradients.

        Args:
            found: The micro-batch.
            first: Whether no update was made on its batch yet.
            policy_version: As for `score`.
            untrained: As for `score`.
        """
        with self._accelerator.autocast():
            logprobs, entropies = self._trained(*_chosen(found.tensors))
        self.num_done += 1
        current = logprobs.detach()
        start, reference = found.start_logprobs, found.reference_logprobs
        if start is None:
            start, reference = current, self._ask_reference(found.tensors)
            self._check_start(found, current, reference, policy_version, untrained)
        elif first:
            self._compare("ratio_one_at_first_pass", current, start, found)
        in_loss = self._options.objective.kl_placement == "loss"
        return TokenScores(
            logprobs=logprobs,
            entropies=entropies,
            start_logprobs=start,
            reference_logprobs=reference if in_loss else None,
            own=_find_own(found, policy_version),
        )

    def score_text(
        self, prompt_ids: Sequence[int], completion_ids: Sequence[int], temperature: float
    ) -> tuple[float, ...]:
        """Compute the log-probability of each token of a completion, in nats."""
        device = self._accelerator.device
        ids_B_T = torch.tensor([[*prompt_ids, *completion_ids]], device=device)
        first = len(prompt_ids) - 1
        positions_N = torch.arange(first, first + len(completion_ids), device=device)
        targets_N = torch.tensor(completion_ids, dtype=torch.long, device=device)
        with torch.no_grad(), self._accelerator.autocast():
            logprobs_N, _ = self._policy(ids_B_T, positions_N, targets_N, temperature=temperature)
        return tuple(logprobs_N.tolist())

    def _ask_reference(self, tensors: MicroBatchTensors) -> Tensor | None:
        if self._reference is None:
            return None
        with self._accelerator.autocast():
            logprobs, _ = self._reference(*_chosen(tensors))
        return logprobs

    def _check_start(
        self,
        found: Prepared,
        start: Tensor,
        reference: Tensor | None,
        policy_version: int,
        untrained: bool,
    ) -> None:
        """Check the policy, unchanged by its batch, against the reference and the sampler."""
        if reference is not None and untrained:
            self._compare("kl_zero_at_first_step", start, reference, found)
        if self._options.check_sampler_logprobs:
            with self._guard:
                invariants.check_same_logprobs(
                    "sampler_logprobs",
                    (start - found.tensors.sampler_logprobs).abs(),
                    found.tensors.sequence,
                    [s if s.policy_version == policy_version else None for s in found.samples],
                    invariants.sampler_bound(self._options),
                )

    def _compare(self, check: str, one: Tensor, other: Tensor, found: Prepared) -> None:
        with self._guard:
            invariants.check_same_logprobs(
                check,
                (one - other).abs(),
                found.tensors.sequence,
                found.samples,
                invariants.reference_bound(self._options.precision),
            )


def needs_scores(options: LearnerOptions) -> bool:
    """Whether a batch must be scored before the first update on it.

    With one update for each batch the policy's pass gives its log-probabilities too. A reference
    that is brought to the device is brought once for the whole batch.
    """
    objective = options.objective
    return (
        options.num_iterations * options.num_mini_batches > 1
        or (objective.kl_placement == "reward" and options.beta > 0)
        or objective.importance_normalise
        or options.reference_offload
    )


def _find_own(found: Prepared, policy_version: int) -> Tensor:
    """Which loss tokens the policy drew in this version, shape N."""
    own = [sample.policy_version == policy_version for sample in found.samples]
    return torch.tensor(own, device=found.tensors.sequence.device)[found.tensors.sequence]


def _chosen(tensors: MicroBatchTensors) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    return tensors.input_ids, tensors.positions, tensors.targets, tensors.position_ids
