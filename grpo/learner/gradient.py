"""The gradient of one update, as it adds up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext

from accelerate import Accelerator
from torch import Tensor, nn

from grpo.learner.parallel import hold_exchange
from grpo.learner.passes import Prepared
from grpo.learner.statistics import Statistics


class GradientSum:
    """Adds the gradients of micro-batches up, and their statistics.

    The normaliser is the whole batch's, so it is taken in at the end: until then nobody has to know
    what is still to come.

    Args:
        trained: The policy, wrapped for its ranks.
        accelerator: Of this rank.
        compute_loss: A micro-batch's part of the loss, before the normaliser.
    """

    def __init__(
        self,
        trained: nn.Module,
        accelerator: Accelerator,
        compute_loss: Callable[[Prepared, Statistics], Tensor],
    ) -> None:
        self._trained = trained
        self._accelerator = accelerator
        self._compute_loss = compute_loss
        self._statistics = Statistics()
        self.num_microbatches = 0

    def add(self, found: Prepared, *, last: bool) -> None:
        """Run a micro-batch forward and backward.

        Args:
            found: The micro-batch.
            last: Whether no other follows, so that ranks exchange what they have.
        """
        held = nullcontext() if last else hold_exchange(self._trained, self._accelerator)
        with held:
            loss = self._compute_loss(found, self._statistics)
            # Gradient exchange averages over ranks; the weights in the loss are for the sum.
            self._accelerator.backward(loss * self._accelerator.num_processes)
        self.num_microbatches += 1

    def finish(
        self, weights: Iterable[nn.Parameter], normaliser: int, gather: Callable[[Tensor], Tensor]
    ) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """Divide the gradient by the normaliser.

        Args:
            weights: Those that train.
            normaliser: Of the whole batch; see `grpo.algorithms.reductions`.
            gather: As for `Statistics.join`.

        Returns:
            The sums, the loss divided too, and the maxima.
        """
        for weight in weights:
            if weight.grad is not None:
                weight.grad.div_(normaliser)
        sums, maxima = self._statistics.join(gather)
        return {
            **sums,
            "loss": sums["loss"] / normaliser,
            "policy_loss": sums["policy_loss"] / normaliser,
        }, maxima
