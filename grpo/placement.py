"""A run's placement groups: what the cluster sets aside for its engines and learner ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import GetTimeoutError
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from grpo.placement_plan import PlacementPlan, Resources, describe_resources, find_misfit
from verifiers.errors import UserError

# What Ray may take to set aside what there is.
_SCHEDULING_S = 30.0
_CURE = (
    "Lower rollout.num_engines, learner.world_size or the threads of either, or take "
    "placement=colocated."
)


def list_nodes() -> list[Resources]:
    """What each living node of the cluster has in all."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def find_own_node() -> str:
    """Ray's name of the node that this process is on."""
    return ray.get_runtime_context().get_node_id()


class PlacementHolder:
    """Sets a plan's bundles aside, and says where each of them is.

    Ray moves the bundles of a lost node to another one that has room; until then what belongs into
    them waits.

    Args:
        plan: What to set aside.
        wait_s: How long the cluster may take to make room; one that grows by itself needs minutes.
    """

    def __init__(self, plan: PlacementPlan, *, wait_s: float) -> None:
        self.plan = plan
        self._wait_s = wait_s
        self._groups: list[PlacementGroup] = []

    @property
    def rank_group(self) -> PlacementGroup:
        """Ray's handle of what was set aside for the learner; rank i has bundle i."""
        return self._groups[0]

    def reserve(self) -> None:
        """Set the bundles aside.

        Raises:
            UserError: The cluster does not have them.
        """
        nodes = list_nodes()
        misfit = find_misfit(self.plan.bundles, nodes)
        if misfit and not self._wait_s:
            raise UserError(f"{self._describe(nodes)}: {misfit}. {_CURE}")
        self._groups = [
            placement_group([dict(bundle) for bundle in bundles], strategy="PACK")
            for bundles in self.plan.groups
        ]
        try:
            ray.get([g.ready() for g in self._groups], timeout=max(self._wait_s, _SCHEDULING_S))
        except GetTimeoutError as error:
            self.release()
            busy = misfit or "others hold a part of it, or it is cut up among the nodes"
            raise UserError(
                f"{self._describe(list_nodes())}: {busy}; waited {self._wait_s:.0f} s "
                f"(ray.placement_timeout_s). {_CURE}"
            ) from error

    def engine_options(self, index: int) -> Mapping[str, Any]:
        """Ray's options for the actor of an engine."""
        group, bundle = self.plan.engine_seats[index]
        return {
            "num_cpus": self.plan.engine.get("CPU", 0),
            "num_gpus": self.plan.engine.get("GPU", 0),
            "scheduling_strategy": PlacementGroupSchedulingStrategy(
                self._groups[group], placement_group_bundle_index=bundle
            ),
        }

    def has_engine_place(self, index: int) -> bool:
        """Whether the bundle of an engine is on a living node."""
        group, bundle = self.plan.engine_seats[index]
        node = placement_group_table(self._groups[group])["bundles_to_node_id"].get(bundle)
        return any(node == known["NodeID"] and known["Alive"] for known in ray.nodes())

    @property
    def node_ids(self) -> frozenset[str]:
        """The nodes that hold engines or ranks."""
        tables = [placement_group_table(group) for group in self._groups]
        return frozenset(node for t in tables for node in t["bundles_to_node_id"].values() if node)

    def release(self) -> None:
        """Give everything back. Calling it twice is harmless."""
        for group in self._groups:
            remove_placement_group(group)
        self._groups = []

    def _describe(self, nodes: Sequence[Resources]) -> str:
        return (
            f"The cluster cannot hold placement={self.plan.placement}. It asks for "
            f"{describe_resources(self.plan.bundles)}; its nodes are "
            f"{describe_resources(nodes)}"
        )
