"""The verifier fleet on a cluster of which not every node can run programs."""

from __future__ import annotations

import pytest
import ray
from ray.cluster_utils import Cluster

from verifiers.fleet import FleetError, VerifierFleet
from verifiers.problem import Problem, Submission
from verifiers.verdict import Status

STORE_BYTES = 100_000_000
CODE = {"code": {"pool_size": 1, "runtime": "runc"}}
TESTS = [{"kind": "function", "entry_point": "f", "args": [2], "expected": 3}]
PROBLEM = Problem(id="p", prompt="", verifier="code", reference=TESTS, source="rows:1")
NO_ENGINE = {"DOCKER_HOST": "unix:///run/there-is-no-engine.sock"}


@pytest.fixture
def open_fleet():
    """A fleet of the verifier `code` on nodes with these environments, and what it notes."""
    clusters, fleets = [], []

    def _open(*environments):
        first, *others = (
            {"num_cpus": 1, "object_store_memory": STORE_BYTES, "env_vars": environment}
            for environment in environments
        )
        clusters.append(Cluster(initialize_head=True, head_node_args=first))
        for other in others:
            clusters[-1].add_node(**other)
        ray.init(address=clusters[-1].address, log_to_driver=False)
        incidents = []
        fleets.append(
            VerifierFleet(specs=CODE, num_workers=1, max_in_flight=8, note=incidents.append)
        )
        fleets[-1].start()
        return fleets[-1], incidents

    yield _open
    for fleet in fleets:
        fleet.close()
    ray.shutdown()
    for cluster in clusters:
        cluster.shutdown()


def test_a_node_without_an_engine_is_left_out_and_named(open_fleet):
    fleet, incidents = open_fleet({}, NO_ENGINE)
    # Some before it is known who can judge, so that what the node was given goes elsewhere.
    for number in range(4):
        fleet.submit(number, Submission(problem=PROBLEM, completion=_program("x + 1")))
    fleet.wait_ready()
    (incident,) = incidents
    assert (incident.action, "No Docker engine" in incident.cause) == ("left out", True)
    assert "verifier actor of code on node" in incident.worker
    fleet.submit(4, Submission(problem=PROBLEM, completion=_program("x")))
    verdicts = {}
    while fleet.pending:
        verdicts |= dict(fleet.finished(timeout_s=5.0))
    assert [verdicts[number].status for number in range(5)] == [
        *[Status.CORRECT] * 4,
        Status.INCORRECT,
    ]


@pytest.mark.long
def test_a_cluster_without_any_engine_is_refused(open_fleet):
    fleet, _ = open_fleet(NO_ENGINE)
    with pytest.raises(
        FleetError, match=r"no node is left for the verifier 'code': No Docker engine"
    ):
        fleet.wait_ready()


def _program(body):
    return f"```python\ndef f(x): return {body}\n```"
