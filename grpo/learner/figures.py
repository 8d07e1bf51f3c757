"""The figures of all updates on one batch, joined into the metrics of a step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from grpo.learner.report import summarise


class StepFigures:
    """Adds up what the updates of a step measured; the same on every rank.

    Attributes:
        num_applied: Updates that changed the weights.
        mean_importance: The batch's mean importance weight, where weights are normalised.
    """

    def __init__(self) -> None:
        self.num_applied = 0
        self.mean_importance = 1.0
        self._num_tried = 0
        self._num_microbatches = 0
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._maxima: dict[str, float] = {}
        self._start: Mapping[str, float] = {}
        self._grad_norm = 0.0
        self._learning_rate = 0.0

    def add(
        self,
        sums: Mapping[str, float],
        maxima: Mapping[str, float],
        *,
        grad_norm: float,
        learning_rate: float,
        num_microbatches: int,
        applied: bool,
    ) -> None:
        """Add an update.

        Args:
            sums: Over its loss tokens.
            maxima: Over its loss tokens.
            grad_norm: Before clipping.
            learning_rate: That it used.
            num_microbatches: Over all ranks.
            applied: Whether it changed the weights.
        """
        self._num_tried += 1
        self.num_applied += applied
        self._num_microbatches += num_microbatches
        for name, value in sums.items():
            self._sums[name] += value
        for name, value in maxima.items():
            self._maxima[name] = max(self._maxima.get(name, value), value)
        self._grad_norm += grad_norm
        self._learning_rate = learning_rate

    def add_start(self, sums: Mapping[str, float]) -> None:
        """Add what was measured before the first update, once for each loss token."""
        self._start = sums

    def summarise(self) -> dict[str, float]:
        """Make the metrics: means over tokens and updates, the last learning rate."""
        metrics = summarise(self._sums, self._maxima, num_updates=self._num_tried)
        if self._start:
            metrics |= {
                "kl": self._start["kl"] / max(self._start["tokens"], 1.0),
                "kl_clamped": self._start["kl_clamped"],
            }
        return metrics | {
            "grad_norm": self._grad_norm / self._num_tried,
            "learning_rate": self._learning_rate,
            "num_microbatches": float(self._num_microbatches),
            "num_updates": float(self.num_applied),
        }
