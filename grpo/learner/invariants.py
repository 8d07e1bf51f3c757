"""What must hold in every update; a breach stops the run and names the sample."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from grpo.learner.options import LearnerOptions, Precision
from grpo.values import Batch, TrainSample

GROUP_MEAN_TOLERANCE = 1e-6
# A run makes millions of checks, and one false alarm ends it: each may have a chance of e^-20.
RARITY = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogprobBound:
    """How far two computations of the same log-probabilities may lie apart, in nats.

    Rounding moves every token by itself. Take the distances as independent, with tails that fall
    like e^(-x / mean): the mean over n of them is then above mean (1 + RARITY / sqrt(n)) with a
    chance below e^-RARITY, whatever n is. One token may be far off, a whole batch may not.

    Attributes:
        mean: What the mean over ever more tokens comes to at most.
        worst: What no token exceeds, where there is such a thing.

    Example:
        >>> bound = LogprobBound(mean=0.1)
        >>> bound.allow(1), bound.allow(10_000)
        (2.1, 0.12)
    """

    mean: float
    worst: float = math.inf

    def allow(self, num_tokens: float) -> float:
        """The largest mean over so many tokens that rounding explains."""
        return min(self.worst, self.mean * (1 + RARITY / math.sqrt(num_tokens)))


# The engine and the learner run different kernels. In float32 single tokens agree to 4e-5 on a
# model of 135 million weights. In bfloat16 a logit of 16 is stored in steps of 0.125, and tokens
# lie 0.01 to 0.05 apart on average; a few are off by more than 1.
SAMPLER_BOUNDS = {
    "float64": LogprobBound(mean=2e-4, worst=1e-3),
    "float32": LogprobBound(mean=2e-4, worst=1e-3),
    "bfloat16": LogprobBound(mean=0.1),
}
# Policy and reference run the same kernels on the same weights.
REFERENCE_BOUNDS = {
    "float64": LogprobBound(mean=1e-5, worst=1e-5),
    "float32": LogprobBound(mean=1e-5, worst=1e-5),
    "bfloat16": LogprobBound(mean=0.02),
}


class InvariantBroken(RuntimeError):
    """A check of the update failed, so what follows would be wrong without a sign of it.

    Args:
        check: The check's name.
        detail: What was found, where.
    """

    def __init__(self, check: str, detail: str) -> None:
        super().__init__(check, detail)
        self.check = check
        self.detail = detail

    def __str__(self) -> str:
        return f"invariant {self.check!r} is broken: {self.detail}"


def check_batch(batch: Batch) -> None:
    """Check lengths and the normaliser before anything is computed from them.

    Raises:
        InvariantBroken: `mask_lengths` or `normaliser`.
    """
    for sample in batch.samples:
        if not sample.prompt_ids:
            raise InvariantBroken("mask_lengths", f"{describe(sample)} has no prompt")
        if len(sample.sampler_logprobs) != len(sample.completion_ids):
            raise InvariantBroken(
                "mask_lengths",
                f"{describe(sample)} has {len(sample.completion_ids)} completion tokens but"
                f" {len(sample.sampler_logprobs)} sampler log-probabilities",
            )
    counted = sum(sample.num_loss_tokens for sample in batch.samples)
    if counted != batch.num_loss_tokens:
        raise InvariantBroken(
            "normaliser",
            f"step {batch.step} says {batch.num_loss_tokens} loss tokens, its samples have "
            f"{counted}",
        )


def check_group_means(samples: Sequence[TrainSample]) -> None:
    """Check that the advantages of every group sum to 0.

    Every verified member of a group must be in the batch, masked if it may not teach; otherwise the
    mean of what is left of the group need not be 0.

    Raises:
        InvariantBroken: `group_mean`.
    """
    groups: dict[tuple[str, int], list[TrainSample]] = defaultdict(list)
    for sample in samples:
        groups[sample.group_key].append(sample)
    for (problem_id, _), members in groups.items():
        advantages = [member.advantage for member in members]
        mean = math.fsum(advantages) / len(advantages)
        scale = max(1.0, *(abs(advantage) for advantage in advantages))
        if not abs(mean) <= GROUP_MEAN_TOLERANCE * scale:
            worst = max(members, key=lambda member: abs(member.advantage))
            raise InvariantBroken(
                "group_mean",
                f"the {len(members)} advantages of problem {problem_id!r} have mean {mean:.3g}, "
                f"not 0;"
                f" the largest is {worst.advantage:.3g}, of {describe(worst)}",
            )


def check_loss_positions(selected: Tensor, samples: Sequence[TrainSample]) -> None:
    """Check that each sample has as many loss tokens in the tensors as in the batch.

    Args:
        selected: Row of each loss token of the micro-batch.
        samples: Its rows.

    Raises:
        InvariantBroken: `mask_lengths`.
    """
    counts = torch.bincount(selected, minlength=len(samples)).tolist()
    for count, sample in zip(counts, samples, strict=True):
        if count != sample.num_loss_tokens:
            raise InvariantBroken(
                "mask_lengths",
                f"{describe(sample)} has {sample.num_loss_tokens} loss tokens, its mask {count}",
            )


def check_same_logprobs(
    check: str,
    difference_N: Tensor,
    sequence_N: Tensor,
    samples: Sequence[TrainSample | None],
    bound: LogprobBound,
) -> None:
    """Check that two computations of log-probabilities agree on every sample.

    A value that is not finite is left to the update, which skips the step for it.

    Args:
        check: The name to report.
        difference_N: Absolute difference at each loss token.
        sequence_N: Row of each loss token.
        samples: The rows; None where one is not to be checked.
        bound: The most that is allowed.

    Raises:
        InvariantBroken: Under the name `check`.
    """
    if not bool(difference_N.isfinite().all()):
        return
    for row, sample in enumerate(samples):
        values = difference_N[sequence_N == row]
        if sample is None or values.numel() == 0:
            continue
        mean, worst = values.mean().item(), values.max().item()
        allowed = bound.allow(values.numel())
        if mean > allowed or worst > bound.worst:
            raise InvariantBroken(
                check,
                f"log-probabilities of {describe(sample)} differ by {mean:.3g} on average and"
                f" {worst:.3g} at worst (token {int(values.argmax())} of the completion); at most"
                f" {allowed:.3g} and {bound.worst:g} are allowed",
            )


def check_mean_difference(
    step: int, *, total: float, num_tokens: float, bound: LogprobBound
) -> None:
    """Check that sampler and learner agree over a whole batch, where rounding averages out.

    Args:
        step: The batch's.
        total: Sum of the absolute differences over all tokens of the learner's own version, on all
            ranks; one that is not finite is left to the update.
        num_tokens: How many there are.
        bound: The most that is allowed.

    Raises:
        InvariantBroken: `sampler_logprobs`.
    """
    if num_tokens and math.isfinite(total) and total / num_tokens > bound.allow(num_tokens):
        raise InvariantBroken(
            "sampler_logprobs",
            f"the {num_tokens:.0f} tokens of step {step} that the current policy drew have"
            f" log-probabilities {total / num_tokens:.3g} off on average, more than the"
            f" {bound.allow(num_tokens):.3g} that rounding explains. The engines serve other"
            " weights, sample at another temperature, or compute otherwise than the learner"
            " (invariants.max_logprob_difference, if that is as it should be)",
        )


def check_learned_tokens(step: int, *, learned: float, counted: int) -> None:
    """Check that the ranks together learned what this rank has normalised the loss for.

    Args:
        step: The batch's.
        learned: Loss tokens of all micro-batches of all ranks.
        counted: Those of the mini-batch, as this rank has it.

    Raises:
        InvariantBroken: `normaliser`.
    """
    if learned != counted:
        raise InvariantBroken(
            "normaliser",
            f"in step {step} the ranks learned from {learned:g} loss tokens together, but this rank"
            f" has normalised the loss for {counted}",
        )


def describe(sample: TrainSample) -> str:
    """Name a sample for a message."""
    return f"completion {sample.member} of problem {sample.problem_id!r}"


def sampler_bound(options: LearnerOptions) -> LogprobBound:
    """How far sampler and learner may lie apart.

    By the coarser precision of the two, or as the user says; single tokens then have no bound.
    """
    if options.max_logprob_difference is not None:
        return LogprobBound(mean=options.max_logprob_difference)
    return SAMPLER_BOUNDS[options.agreed_precision]


def reference_bound(precision: Precision) -> LogprobBound:
    """How far policy and reference may lie apart while they are the same weights."""
    return REFERENCE_BOUNDS[precision]
