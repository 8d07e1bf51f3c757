"""What a learner has done of a batch that is not whole yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

from grpo.learner.batching import MicroBatch
from grpo.learner.gradient import GradientSum
from grpo.learner.invariants import InvariantBroken, describe
from grpo.learner.options import LearnerOptions
from grpo.learner.packing import packs_samples
from grpo.learner.passes import Prepared, needs_scores
from grpo.learner.planning import MiniBatch, Planner
from grpo.values import Batch, TrainSample


class BegunUpdate:
    """The beginning of an update.

    Args:
        step: Which step's.
        planner: Says what shares a micro-batch.
        gradient: Takes those that are full.
        prepare: Lays one out.
    """

    def __init__(
        self,
        step: int,
        planner: Planner,
        gradient: GradientSum,
        prepare: Callable[[MicroBatch], Prepared],
    ) -> None:
        self.step = step
        self.gradient = gradient
        self._packer = planner.make_packer()
        # All that came, in order; and the loss tokens, over all ranks, that were learned from.
        self.samples: list[TrainSample] = []
        self.num_tokens = 0
        self._planner = planner
        self._prepare = prepare

    def add(self, samples: Sequence[TrainSample]) -> None:
        """Learn from the micro-batches that these fill; the rest waits."""
        self.samples += samples
        for micro_batches in self._packer.add(self._planner.weigh(samples)):
            self.gradient.add(self._prepare(micro_batches[self._planner.rank]), last=False)
            everyone = chain.from_iterable(micro_batches)
            self.num_tokens += sum(member.sample.num_loss_tokens for member in everyone)

    def plan_rest(self, batch: Batch) -> list[MiniBatch]:
        """The one update of the batch, with the micro-batches that are left of it."""
        return self._planner.plan_rest(batch.samples, self._packer, len(self.samples))

    def check(self, batch: Batch) -> None:
        """See that the batch begins with what was learned from.

        Raises:
            InvariantBroken: It does not.
        """
        begun = batch.samples[: len(self.samples)]
        for sample, other in zip(self.samples, begun, strict=False):
            if sample != other:
                raise InvariantBroken(
                    "head_start",
                    f"{describe(sample)} was learned from ahead, and the batch of step "
                    f"{batch.step} has {describe(other)} in its place",
                )
        if len(begun) < len(self.samples):
            raise InvariantBroken(
                "head_start",
                f"{len(self.samples)} samples were learned from ahead, and the batch of step "
                f"{batch.step} has {len(begun)}",
            )


def takes_head_start(options: LearnerOptions) -> bool:
    """Whether a learner can begin with part of a batch, and end with the same numbers.

    Packed micro-batches follow from the order of the samples; padded ones are sorted by length over
    the whole batch. What must be scored first has to be whole as well. And a GPU that is shared is
    an engine's until all is sampled.
    """
    return packs_samples(options) and not needs_scores(options) and not options.shares_gpu
