"""A driver on a head without GPUs, and a node that tells Ray that it has some."""

from __future__ import annotations

import socket

import pytest
import torch
from ray.cluster_utils import Cluster

from grpo.cluster import find_cluster_device, start_ray, stop_ray
from grpo.config.schema import RunConfig
from grpo.learner.group import LearnerGroup, RankResources
from grpo.wiring.learner import make_learner_options
from grpo.wiring.placement import find_transport, reserve_placement
from verifiers.errors import UserError

STORE_BYTES = 100_000_000


@pytest.fixture
def cluster():
    made = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "num_gpus": 0, "object_store_memory": STORE_BYTES},
    )
    yield made
    stop_ray()
    made.shutdown()


def test_ranks_are_where_the_gpus_are_and_say_so_if_there_are_none(cluster, tiny_policy):
    """The GPUs may be a mere word to Ray: then what is set aside is real, and ranks find none."""
    config = RunConfig.model_validate(
        {
            "model": str(tiny_policy(tied=True)),
            "data": {"path": "d.jsonl"},
            "ray": {"address": cluster.address},
        }
    )
    start_ray(config.ray)
    offering = cluster.add_node(num_cpus=2, num_gpus=2, object_store_memory=STORE_BYTES)
    cluster.wait_for_nodes()
    assert find_cluster_device() == "cuda"
    placement = reserve_placement(config, "cuda", with_learner=True)
    assert placement.plan.placement == "dedicated"
    assert placement.node_ids == {offering.node_id}
    assert find_transport(config, placement) == "nccl"
    group = LearnerGroup(
        make_learner_options(config, config.model, placement.plan.device),
        resources=RankResources(num_cpus=0.01, num_gpus=placement.plan.rank["GPU"]),
        placement=placement.rank_group,
    )
    group.start()
    try:
        if torch.cuda.is_available():
            assert group.wait_ready(timeout_s=120)[0]["device"] == "cuda:0"
        else:
            with pytest.raises(UserError, match=f"rank 0 .* none on {socket.gethostname()}"):
                group.wait_ready(timeout_s=120)
    finally:
        group.close()
        placement.release()
