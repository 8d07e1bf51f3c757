"""Sums and maxima over the loss tokens of a step, joined over micro-batches and ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor


class Statistics:
    """Named sums and maxima of a step, kept on the device until the step's end.

    Every micro-batch adds the same names, so that ranks can be joined by position.
    """

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._maxima: dict[str, Tensor] = {}

    def add(self, name: str, values: Tensor) -> None:
        """Add the sum of some values, of any shape."""
        total = values.detach().double().sum()
        self._sums[name] = self._sums[name] + total if name in self._sums else total

    def raise_to(self, name: str, values: Tensor) -> None:
        """Raise a maximum of values that are never negative; no values leave it as it is."""
        peak = values.detach().double().max() if values.numel() else values.new_zeros(()).double()
        old = self._maxima.get(name)
        self._maxima[name] = peak if old is None else torch.maximum(old, peak)

    def join(
        self, gather: Callable[[Tensor], Tensor]
    ) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """Join the ranks' figures.

        Args:
            gather: Takes a tensor of shape (1, n) and returns every rank's, stacked along the first
                axis.

        Returns:
            The sums and the maxima by name, the same on every rank.
        """
        return (
            self._join(self._sums, gather, lambda stacked: stacked.sum(0)),
            self._join(self._maxima, gather, lambda stacked: stacked.amax(0)),
        )

    @staticmethod
    def _join(
        figures: Mapping[str, Tensor],
        gather: Callable[[Tensor], Tensor],
        combine: Callable[[Tensor], Tensor],
    ) -> Mapping[str, float]:
        if not figures:
            return {}
        names = sorted(figures)
        stacked = gather(torch.stack([figures[name] for name in names])[None])
        return dict(zip(names, combine(stacked).tolist(), strict=True))
