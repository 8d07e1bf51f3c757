"""How much of a GPU a learner rank will take, before anything of it is loaded.

Only what is certain is counted: weights, gradients, optimizer states, copies, and what an engine
on the same GPU was given. Activations, CUDA's own memory and what is lost between tensors come
on top.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grpo.config.schema import RunConfig
from grpo.memory_plan import BYTES, Share
from verifiers.errors import UserError

_FLOAT32 = 4
# AdamW's two moments of a weight; in 8 bits its quantisation constants are small beside them.
_MOMENTS = {"adamw_torch": 8, "adamw_8bit": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """What a rank's GPU is, and what else is on it.

    Attributes:
        num_bytes: Its memory.
        shared: Whether an engine has it too.
        engine_sleeps: Whether that engine gives its memory back during an update.
        keeps_copy: Whether the rank keeps a copy of the policy there for the engines.
    """

    num_bytes: float
    shared: bool = False
    engine_sleeps: bool = False
    keeps_copy: bool = False


def plan_rank(
    config: RunConfig, parameters: int, gpu: GpuFacts, *, dtype: str, utilization: float
) -> dict[str, tuple[Share, ...]]:
    """What lies on a rank's GPU during an update, and while rollouts are drawn.

    Args:
        config: Of the run.
        parameters: Of the model.
        gpu: The rank's.
        dtype: In which the engines hold the weights.
        utilization: The share of the GPU that an engine on it takes.
    """
    ranks = config.learner.world_size if config.learner.sharding == "fsdp2" else 1
    held = parameters / ranks
    knob = "learner.sharding=fsdp2 with more of learner.world_size, lora_r"
    # Adapters are small beside the model under them.
    trained = 0 if config.lora_r else held
    weights = Share(part="weights", num_bytes=held * _FLOAT32, knob=knob)
    gradients = Share(part="gradients", num_bytes=trained * _FLOAT32, knob=knob)
    moments = Share(
        part="optimizer",
        num_bytes=trained * _MOMENTS[config.optim],
        knob=f"{knob}, optim=adamw_8bit",
    )
    copied = config.beta and not config.lora_r and not config.learner.reference_offload
    reference = Share(
        part="reference",
        num_bytes=held * _FLOAT32 if copied else 0,
        knob="learner.reference_offload=true, beta=0",
    )
    copy = Share(
        part="copy for the engines",
        num_bytes=parameters * BYTES[dtype] if gpu.keeps_copy else 0,
        knob="rollout.weight_transport=shared_memory",
    )
    engine = Share(
        part="engine",
        num_bytes=utilization * gpu.num_bytes if gpu.shared else 0,
        knob="rollout.gpu_memory_utilization, placement=dedicated",
    )
    kept = (weights, moments, reference, copy)
    awake = () if gpu.engine_sleeps else (engine,)
    moments_of_a_step = {"an update": (*kept, gradients, *awake), "rollouts": (*kept, engine)}
    return {
        when: tuple(share for share in shares if share.num_bytes)
        for when, shares in moments_of_a_step.items()
    }


def check_rank(plan: dict[str, tuple[Share, ...]], gpu: GpuFacts) -> None:
    """Refuse a run whose learner cannot fit.

    Raises:
        UserError: A GPU is too small; the message lists the parts and what makes them smaller.
    """
    for when, shares in plan.items():
        total = sum(share.num_bytes for share in shares)
        if total > gpu.num_bytes:
            largest = max(shares, key=lambda share: share.num_bytes)
            raise UserError(
                f"A learner rank's GPU would hold {total / 1e9:.0f} GB during {when}, before any "
                f"activation, and has {gpu.num_bytes / 1e9:.0f} GB. In GB: {_list(shares)}. The "
                f"largest part, {largest.part}, is made smaller by {largest.knob}."
            )


def describe_rank(plan: dict[str, tuple[Share, ...]], gpu: GpuFacts) -> str:
    """The plan in words."""
    shares = plan["an update"]
    total = sum(share.num_bytes for share in shares)
    return (
        f"{total / 1e9:.1f} of {gpu.num_bytes / 1e9:.0f} GB on a rank's GPU, and activations: "
        f"{_list(shares)}"
    )


def _list(shares: Sequence[Share]) -> str:
    return ", ".join(f"{share.part} {share.num_bytes / 1e9:.1f}" for share in shares)
