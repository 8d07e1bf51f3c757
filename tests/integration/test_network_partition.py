"""Two machines, between which the network is cut: no word comes back, not even a refusal."""

from __future__ import annotations

import base64
import pickle
import subprocess
import sys
import time
from datetime import timedelta

import pytest
from ray.cluster_utils import Cluster

from grpo.rollout import desk, gloo
from grpo.rollout.errors import WeightsRefused
from grpo.rollout.transports import open_payload
from tests.followed_run import FollowedRun
from tests.integration.test_lost_node import (
    RUN,
    STEPS,
    STORE_BYTES,
    check_that_every_sample_is_there_once,
)
from tests.second_machine import HERE, THERE, SecondMachine

SENDER = """
import base64, pickle, sys, torch
from grpo.rollout import desk, gloo
from grpo.rollout.transports import make_sender
desk.own_address = gloo.own_address = lambda: sys.argv[1]
gloo.BUCKET_BYTES = 1 << 20
sender = make_sender("gloo")
payload = sender.send([("weight", torch.ones(4 << 20))])
print(base64.b64encode(pickle.dumps(payload)).decode(), flush=True)
sys.stdin.read()
"""


def wait_for_nodes(cluster, number, second):
    # The cluster's own wait counts nodes that it has started itself.
    while len(cluster.global_state._live_node_ids()) < number:
        assert second.poll() is None, "the second machine's node has ended"
        time.sleep(0.2)


@pytest.fixture
def second_machine():
    machine = SecondMachine()
    yield machine
    machine.close()


@pytest.fixture
def start_cluster(second_machine):
    """Makes a cluster of this machine and the second, with so many cores each."""
    clusters = []

    def start(here, there):
        head = {"num_cpus": here, "object_store_memory": STORE_BYTES, "node_ip_address": HERE}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        clusters.append(cluster)
        node = second_machine.join(cluster.address, num_cpus=there, store_bytes=STORE_BYTES)
        wait_for_nodes(cluster, 2, node)
        return cluster, node

    yield start
    second_machine.close()
    for cluster in clusters:
        cluster.shutdown()


@pytest.mark.long
def test_a_run_goes_on_without_the_machine_that_cannot_be_reached(
    tmp_path, second_machine, start_cluster
):
    # The learner takes two cores and fits on this machine alone, with one engine beside it.
    cluster, _ = start_cluster(here=3, there=1)
    run = FollowedRun(tmp_path, *RUN, "learner.num_threads=2", f"ray.address={cluster.address}")
    try:
        run.wait_for("step 3/")
        with run.held():
            assert any("ray::EngineActor" in line for line in second_machine.processes())
            second_machine.cut_off()
        check_that_it_ends_well(run, stage="rollout")
    finally:
        run.stop()


@pytest.mark.long
def test_a_learner_that_cannot_be_reached_is_started_where_it_can(
    tmp_path, second_machine, start_cluster
):
    # The learner takes two cores, which the second machine alone has in the beginning.
    cluster, second = start_cluster(here=1, there=2)
    alone = ("rollout.num_engines=1", "learner.num_threads=2")
    run = FollowedRun(tmp_path, *RUN, *alone, f"ray.address={cluster.address}")
    try:
        run.wait_for("step 3/")
        with run.held():
            assert any("ray::LearnerRank" in line for line in second_machine.processes())
            cluster.add_node(
                num_cpus=2, object_store_memory=STORE_BYTES, node_ip_address=HERE, wait=False
            )
            wait_for_nodes(cluster, 3, second)
            second_machine.cut_off()
        check_that_it_ends_well(run, stage="learner")
    finally:
        run.stop()


def check_that_it_ends_well(run, *, stage):
    """All steps, every sample once, and the lost machine by its address."""
    summary = run.finish(timeout=500)
    assert summary["steps"] == STEPS
    check_that_every_sample_is_there_once(run.folder)
    lost = [i for i in summary["incidents"] if i["stage"] == stage]
    assert any(THERE in incident["cause"] for incident in lost), lost


@pytest.fixture
def payload(second_machine, monkeypatch):
    """Weights that a learner on the second machine gives away."""
    monkeypatch.setattr(gloo, "own_address", lambda: HERE)
    monkeypatch.setattr(gloo, "BUCKET_BYTES", 1 << 20)
    for module, name in ((gloo, "BUCKET_TIMEOUT"), (desk, "CONNECT_TIMEOUT")):
        monkeypatch.setattr(module, name, timedelta(seconds=5))
    sender = second_machine.start(
        sys.executable, "-c", SENDER, THERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with sender.stdin, sender.stdout:
        yield pickle.loads(base64.b64decode(sender.stdout.readline()))


@pytest.mark.long
@pytest.mark.parametrize(
    ("owner", "name"),
    [
        pytest.param(None, None, id="before"),
        pytest.param(desk.distributed, "TCPStore", id="connected"),
        pytest.param(gloo, "ask", id="asked"),
        pytest.param(gloo, "_meet", id="met"),
    ],
)
def test_an_engine_does_not_wait_for_a_learner_that_cannot_be_reached(
    second_machine, payload, monkeypatch, owner, name
):
    assert open_payload(payload).nbytes == payload.num_bytes
    if owner is None:
        second_machine.cut_off()
    else:
        step = getattr(owner, name)

        def cut_after(*arguments, **options):
            answer = step(*arguments, **options)
            second_machine.cut_off()
            return answer

        monkeypatch.setattr(owner, name, cut_after)
    with pytest.raises(WeightsRefused, match=f"did not arrive over gloo from {THERE}"):
        open_payload(payload)
