"""What a rank does of a batch: its micro-batches of each update, and what they are divided by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grpo.algorithms.reductions import count_normaliser
from grpo.learner.batching import (
    MicroBatch,
    Packer,
    WeightedSample,
    plan_microbatches,
    split_by_groups,
    weigh_samples,
)
from grpo.learner.options import LearnerOptions
from grpo.learner.packing import packs_samples
from grpo.values import TrainSample


@dataclass(frozen=True, slots=True, kw_only=True)
class MiniBatch:
    """What one update learns from.

    Attributes:
        samples: Of whole groups, in the batch's order.
        microbatches: Of this rank.
        num_tokens: Loss tokens, over all ranks.
        normaliser: What the loss is divided by; see `grpo.algorithms.reductions`.
    """

    samples: Sequence[TrainSample]
    microbatches: Sequence[MicroBatch]
    num_tokens: int
    normaliser: int


class Planner:
    """Plans updates for one rank.

    Args:
        options: Of the learner.
        rank: This one's number.
        world_size: How many there are.
    """

    def __init__(self, options: LearnerOptions, *, rank: int, world_size: int) -> None:
        self._options = options
        self.rank = rank
        self._world_size = world_size

    def make_packer(self) -> Packer:
        """For samples that come bit by bit."""
        return Packer(
            max_tokens=self._options.max_tokens_per_microbatch, world_size=self._world_size
        )

    def weigh(self, samples: Sequence[TrainSample]) -> list[WeightedSample]:
        """As `weigh_samples`."""
        return weigh_samples(
            samples,
            reduction=self._options.objective.loss_reduction,
            max_completion_length=self._options.max_completion_length,
        )

    def plan(self, samples: Sequence[TrainSample]) -> list[MiniBatch]:
        """The updates of a batch, none of which is empty."""
        return [
            self._describe(part, self._deal(part))
            for part in split_by_groups(samples, self._options.num_mini_batches)
        ]

    def plan_rest(
        self, samples: Sequence[TrainSample], packer: Packer, num_packed: int
    ) -> list[MiniBatch]:
        """The one update of a batch of which some samples went through a packer before.

        Args:
            samples: The batch.
            packer: Has some that did not fill a micro-batch yet.
            num_packed: How many of the samples went through it; whole groups.
        """
        rounds = [*packer.add(self.weigh(samples[num_packed:])), *packer.finish()]
        return [self._describe(samples, [micro[self.rank] for micro in rounds])]

    def _deal(self, samples: Sequence[TrainSample]) -> list[MicroBatch]:
        shares = plan_microbatches(
            self.weigh(samples),
            max_tokens=self._options.max_tokens_per_microbatch,
            world_size=self._world_size,
            packed=packs_samples(self._options),
        )
        return shares[self.rank]

    def _describe(
        self, samples: Sequence[TrainSample], microbatches: Sequence[MicroBatch]
    ) -> MiniBatch:
        lengths = [sample.num_loss_tokens for sample in samples]
        return MiniBatch(
            samples=samples,
            microbatches=microbatches,
            num_tokens=sum(lengths),
            normaliser=count_normaliser(
                lengths,
                groups=[sample.group_key for sample in samples],
                reduction=self._options.objective.loss_reduction,
            ),
        )
