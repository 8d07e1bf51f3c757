"""Where a run's engines and ranks are, and how weights go from one to the other."""

from __future__ import annotations

from grpo.config.schema import RunConfig
from grpo.environment import find_device
from grpo.placement import PlacementHolder, find_own_node, list_nodes
from grpo.placement_plan import Parts, PlacementPlan, plan_placement
from grpo.rollout.choosing import Between, choose_transport
from grpo.rollout.weights import Transport


def reserve_placement(config: RunConfig, *, with_learner: bool) -> PlacementHolder:
    """Set the resources of a run aside.

    Args:
        config: Of the run.
        with_learner: False for an evaluation, whose engines have the cluster to themselves.

    Raises:
        UserError: The cluster does not have them.
    """
    on_gpu = find_device() == "cuda"
    wanted = None if config.placement == "auto" or not with_learner else config.placement
    plan = plan_placement(
        wanted,
        Parts(
            num_engines=config.rollout.num_engines,
            tensor_parallel_size=config.rollout.tensor_parallel_size,
            world_size=config.learner.world_size if with_learner else 0,
            engine_threads=config.rollout.num_threads,
            rank_threads=config.learner.num_threads,
        ),
        on_gpu=on_gpu,
        nodes=list_nodes(),
    )
    wait_s = config.ray.placement_timeout_s if config.ray.address else 0.0
    holder = PlacementHolder(plan, wait_s=wait_s)
    holder.reserve()
    return holder


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
        on_gpu=find_device() == "cuda",
        share_gpus=plan.takes_turns and enough_ranks,
        apart=plan.placement == "dedicated",
    )
    return choose_transport(None if chosen == "auto" else chosen, between)
