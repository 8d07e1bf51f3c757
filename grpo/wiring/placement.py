"""Where a run's engines and ranks are, and how weights go from one to the other."""

from __future__ import annotations

from pathlib import Path

from grpo.config.schema import RunConfig
from grpo.environment import find_gpu_bytes, resolve_dtype
from grpo.gpu_memory_plan import GpuFacts, check_rank, describe_rank, plan_rank
from grpo.memory_plan import count_parameters
from grpo.placement import PlacementHolder, find_own_node, list_nodes
from grpo.placement_plan import Parts, PlacementPlan, plan_placement
from grpo.rollout.choosing import Between, choose_transport
from grpo.rollout.options import Device
from grpo.rollout.weights import DEVICE_TRANSPORTS, Transport


def reserve_placement(
    config: RunConfig, device: Device | None, *, with_learner: bool
) -> PlacementHolder:
    """Set the resources of a run aside.

    Args:
        config: Of the run.
        device: What engines and ranks compute on.
        with_learner: False for an evaluation, whose engines have the cluster to themselves.

    Raises:
        UserError: The cluster does not have them.
    """
    assert device is not None, "nothing is set aside without asking what there is"
    wanted = None if config.placement == "auto" or not with_learner else config.placement
    plan = plan_placement(
        wanted,
        make_placed_parts(config, with_learner=with_learner),
        on_gpu=device == "cuda",
        nodes=list_nodes(),
    )
    wait_s = config.ray.placement_timeout_s if config.ray.address else 0.0
    holder = PlacementHolder(plan, wait_s=wait_s)
    holder.reserve()
    return holder


def make_placed_parts(config: RunConfig, *, with_learner: bool) -> Parts:
    """What has to be placed."""
    return Parts(
        num_engines=config.rollout.num_engines,
        tensor_parallel_size=config.rollout.tensor_parallel_size,
        world_size=config.learner.world_size if with_learner else 0,
        engine_threads=config.rollout.num_threads,
        rank_threads=config.learner.num_threads,
    )


def engines_sleep(config: RunConfig, plan: PlacementPlan) -> bool:
    """Whether engines give their memory back while the learner works.

    With `max_staleness` both work at the same time, so each keeps its own.
    """
    return plan.takes_turns and config.max_staleness == 0


def find_transport(config: RunConfig, placement: PlacementHolder) -> Transport:
    """How weights reach the engines.

    Args:
        config: Of the run.
        placement: What was set aside for it.

    Raises:
        UserError: What was chosen does not reach all of them.
    """
    chosen = config.rollout.weight_transport
    enough_ranks = config.learner.world_size >= config.rollout.num_engines
    plan, nodes = placement.plan, placement.node_ids
    between = Between(
        num_nodes=len(nodes),
        with_driver=nodes == {find_own_node()},
        # From GPU to GPU go whole weights only; an adapter is small.
        on_gpu=plan.device == "cuda" and config.lora_push == "merged",
        share_gpus=plan.takes_turns and enough_ranks,
        apart=plan.placement == "dedicated",
    )
    return choose_transport(None if chosen == "auto" else chosen, between)


def describe_gpu(config: RunConfig, model: str, plan: PlacementPlan, transport: Transport) -> str:
    """What a learner rank's GPU will hold; nothing where that is not known.

    On a cluster, GPUs are those of other machines.

    Raises:
        UserError: It is too small.
    """
    parameters = count_parameters(Path(model))
    if plan.device == "cpu" or config.ray.address is not None or parameters is None:
        return ""
    gpu = GpuFacts(
        num_bytes=find_gpu_bytes(),
        shared=plan.takes_turns,
        engine_sleeps=engines_sleep(config, plan),
        keeps_copy=transport in DEVICE_TRANSPORTS,
    )
    held = plan_rank(
        config,
        parameters,
        gpu,
        dtype=resolve_dtype(config.rollout.dtype, plan.device),
        utilization=find_utilization(config, plan.takes_turns),
    )
    check_rank(held, gpu)
    return describe_rank(held, gpu)


def find_utilization(config: RunConfig, shared: bool) -> float:
    """The share of a GPU that an engine takes, by whether a learner rank has the same."""
    return config.rollout.gpu_memory_utilization or (0.5 if shared else 0.9)
