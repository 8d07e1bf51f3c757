"""How the GPUs of a cluster are shared between engines and learner ranks."""

from __future__ import annotations

from dataclasses import dataclass

from verifiers.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuShares:
    """GPUs that each actor asks Ray for.

    Attributes:
        engine: For one engine.
        rank: For one learner rank.
    """

    engine: float
    rank: float


def share_gpus(
    available: int, *, num_engines: int, tensor_parallel_size: int, world_size: int
) -> GpuShares:
    """Give every engine and rank GPUs of its own, or have each rank share one with an engine.

    Args:
        available: GPUs that the cluster has.
        num_engines: Engines.
        tensor_parallel_size: GPUs that one engine spans.
        world_size: Learner ranks.

    Raises:
        UserError: There are too few for either.

    Example:
        >>> share_gpus(1, num_engines=1, tensor_parallel_size=1, world_size=1)
        GpuShares(engine=0.5, rank=0.5)
    """
    apart = num_engines * tensor_parallel_size + world_size
    if available >= apart:
        return GpuShares(engine=float(tensor_parallel_size), rank=1.0)
    together = max(num_engines, world_size)
    if tensor_parallel_size == 1 and available >= together:
        return GpuShares(engine=0.5, rank=0.5)
    fewest = together if tensor_parallel_size == 1 else apart
    raise UserError(
        f"rollout.num_engines={num_engines} x rollout.tensor_parallel_size={tensor_parallel_size} "
        f"and learner.world_size={world_size} need {apart} GPUs, or {fewest} at least; there are "
        f"{available}. Lower one of them."
    )
