"""What can go wrong with an engine, by name."""

from __future__ import annotations


class RolloutError(RuntimeError):
    """The rollout side cannot go on; the message names the engine and the cause is chained."""


class EngineDied(RolloutError):
    """The process of an engine is gone (killed, out of memory, crashed)."""


class EngineFailed(RolloutError):
    """An engine raised: while it started, generated, or took weights."""


class EngineStalled(RolloutError):
    """An engine made no progress for longer than it may."""


class WeightPushFailed(RolloutError):
    """An engine does not serve the weights it was sent."""


class WeightsRefused(WeightPushFailed):
    """An engine refused the weights and serves the policy it had: sending again is sound."""
