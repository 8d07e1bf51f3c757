"""Keeps account of what a model is given while an engine of vLLM's own loads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import torch

from grpo.rollout.tensor_checksum import TensorChecksum

# The names of the parameters that were loaded, where a model says so.
LoadWeights = Callable[[Iterable[tuple[str, torch.Tensor]]], set[str] | None]


class LoadRecorder:
    """Stands for a model while it is loaded, and keeps account of what it is given.

    Args:
        model: What the weights go into.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._load = cast("LoadWeights", model.load_weights)
        self._checksum = TensorChecksum()
        self.loaded: set[str] | None = set()

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Pass some of the weights on; there may be several calls."""
        loaded = self._load(self._count(weights))
        if self.loaded is not None:
            self.loaded = None if loaded is None else self.loaded | loaded

    def checksum(self) -> str:
        """Of everything that was passed on."""
        return self._checksum.value()

    def _count(
        self, weights: Iterable[tuple[str, torch.Tensor]]
    ) -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in weights:
            self._checksum.add(name, tensor)
            yield name, tensor


def receive_recorded(engine: Any, names: set[str], receive: Callable[[], None]) -> str:
    """Have an engine receive a push while a recorder stands for its model.

    Args:
        engine: vLLM's.
        names: The parameters that a push must cover.
        receive: Receives it.

    Returns:
        The checksum of what was loaded.

    Raises:
        ValueError: The push left parameters of the model out.
    """
    model = engine.model
    recorder = engine.model = LoadRecorder(model)
    try:
        receive()
    finally:
        engine.model = model
    require_all(names, recorder.loaded)
    return recorder.checksum()


def require_all(names: set[str], loaded: set[str] | None) -> None:
    """See that a push covered a model.

    Args:
        names: Of its parameters.
        loaded: Of those that were loaded, where the model says so.

    Raises:
        ValueError: Some were not.
    """
    if loaded is not None and (missing := sorted(names - loaded)):
        raise ValueError(
            f"the push has no weights for {len(missing)} parameters: {', '.join(missing[:5])}"
        )
