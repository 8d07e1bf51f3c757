"""Which transport carries the weights, by the hardware between the learner and the engines."""

from __future__ import annotations

from grpo.rollout.weights import Transport
from verifiers.errors import UserError


def choose_transport(wanted: Transport | None, *, num_nodes: int) -> Transport:
    """Pick the transport of a run.

    Args:
        wanted: What the user chose; None leaves it to the hardware.
        num_nodes: Nodes of the cluster.

    Raises:
        UserError: What was chosen does not reach every engine.

    Example:
        >>> choose_transport(None, num_nodes=1), choose_transport(None, num_nodes=2)
        ('shared_memory', 'gloo')
    """
    if wanted == "shared_memory" and num_nodes > 1:
        raise UserError(
            f"rollout.weight_transport=shared_memory reaches engines on the learner's node only, "
            f"and the cluster has {num_nodes} nodes: take gloo or object, or leave it at auto."
        )
    return wanted or ("shared_memory" if num_nodes == 1 else "gloo")
