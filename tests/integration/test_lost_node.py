"""A run on a Ray cluster of two nodes, of which one is cut off in the middle."""

from __future__ import annotations

import json

import psutil
import pytest
from ray.cluster_utils import Cluster

from tests.followed_run import FollowedRun

STORE_BYTES = 200_000_000
GROUPS, MEMBERS, STEPS = 4, 4, 8
RUN = (
    "placement=dedicated",
    "rollout.num_engines=2",
    "rollout.num_threads=1",
    "learner.num_threads=1",
    # Sums only: a pool of containers for each node is another test's subject.
    "data.1.limit=1",
    "data.1.weight=1e-9",
    f"steps={STEPS}",
    "save_steps=2",
    f"prompts_per_step={GROUPS}",
    f"num_generations={MEMBERS}",
    "evaluation.data=[]",
)


@pytest.fixture
def start_cluster():
    """Makes a cluster: a head for the driver alone, and nodes with so many cores."""
    clusters = []

    def start(*cores):
        head = {"num_cpus": 0, "object_store_memory": STORE_BYTES}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        clusters.append(cluster)
        nodes = [cluster.add_node(num_cpus=n, object_store_memory=STORE_BYTES) for n in cores]
        return cluster, nodes

    yield start
    for cluster in clusters:
        cluster.shutdown()


def holds(node, title):
    """Whether an actor runs on a node: whether its process is a child of the node's raylet."""
    raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
    return any(title in " ".join(child.cmdline()) for child in raylet.children(recursive=True))


def check_that_every_sample_is_there_once(folder):
    rows = [json.loads(row) for row in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    for step in range(1, STEPS + 1):
        lines = (folder / f"rollouts/step-{step:06d}.jsonl").read_text().splitlines()
        rollouts = [json.loads(line) for line in lines]
        assert len(rollouts) == len({row["seed"] for row in rollouts}) == GROUPS * MEMBERS
        assert all(row["status"] not in {"error", "bad_gold"} for row in rollouts)
    return rows


@pytest.mark.long
@pytest.mark.parametrize(
    ("cores", "lost", "restarted"),
    [
        # The learner and an engine fill the larger node, which has no room for the other engine.
        ((2, 1), "engine", {"rollout"}),
        # Either node has room for the learner beside the engines that it may hold.
        ((3, 3), "learner", {"learner"}),
    ],
)
def test_a_run_finishes_on_the_node_that_is_left(tmp_path, start_cluster, cores, lost, restarted):
    cluster, nodes = start_cluster(*cores)
    run = FollowedRun(tmp_path, *RUN, f"ray.address={cluster.address}")
    try:
        run.wait_for("step 3/")
        with run.held():
            of_learner = next(node for node in nodes if holds(node, "ray::LearnerRank"))
            (other,) = (node for node in nodes if node is not of_learner)
            assert holds(other, "ray::EngineActor")
            cluster.remove_node(of_learner if lost == "learner" else other, allow_graceful=False)
        summary = run.finish(timeout=400)
    finally:
        run.stop()
    assert summary["steps"] == STEPS
    check_that_every_sample_is_there_once(run.folder)
    incidents = {incident["stage"] for incident in summary["incidents"]}
    assert restarted <= incidents
    assert ("learner" in incidents) == (lost == "learner")
