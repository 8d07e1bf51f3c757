"""Which transport carries the weights, by the hardware between the learner and the engines."""

from __future__ import annotations

from dataclasses import dataclass

from grpo.rollout.options import WeightBackend
from grpo.rollout.weights import DEVICE_TRANSPORTS, Transport
from verifiers.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """What lies between a learner and its engines.

    Attributes:
        num_nodes: Nodes that they are on.
        with_driver: Whether that is the driver's node alone.
        on_gpu: Whether both compute on GPUs.
        share_gpus: Whether each engine shares its GPU with a learner rank.
        apart: Whether no engine shares its GPUs with a learner rank.
    """

    num_nodes: int
    with_driver: bool = True
    on_gpu: bool = False
    share_gpus: bool = False
    apart: bool = False


def choose_transport(wanted: Transport | None, between: Between) -> Transport:
    """Pick the transport of a run.

    Args:
        wanted: What the user chose; None leaves it to the hardware.
        between: The hardware.

    Raises:
        UserError: What was chosen does not reach every engine.

    Example:
        >>> choose_transport(None, Between(num_nodes=2))
        'gloo'
    """
    if wanted is not None:
        if trouble := _find_trouble(wanted, between):
            raise UserError(
                f"rollout.weight_transport={wanted} {trouble}; choose another, or leave it at auto."
            )
        return wanted
    if between.on_gpu and between.share_gpus:
        return "ipc"
    if between.on_gpu and between.apart:
        return "nccl"
    # What was on a node that is lost may come back on several: but not on the driver's, with which
    # the run is lost.
    return "shared_memory" if between.num_nodes == 1 and between.with_driver else "gloo"


def find_backend(transport: Transport) -> WeightBackend:
    """Which of vLLM's sides of a push an engine is built with."""
    return "nccl" if transport == "nccl" else "ipc" if transport == "ipc" else "host"


def _find_trouble(wanted: Transport, between: Between) -> str | None:
    if wanted in DEVICE_TRANSPORTS and not between.on_gpu:
        return "goes from GPU to GPU, and the run computes on CPU"
    if wanted == "ipc" and not between.share_gpus:
        return (
            "needs every engine on the GPU of a learner rank (placement: colocated, with as many "
            "ranks as engines)"
        )
    if wanted == "nccl" and not between.apart:
        return "needs engines and ranks on different GPUs (placement: dedicated)"
    if wanted == "shared_memory" and between.num_nodes > 1:
        return (
            "reaches engines on the learner's node only, and the run is placed on "
            f"{between.num_nodes} nodes"
        )
    return None
