"""What Ray is asked, and what follows from its answers: without Ray."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from grpo import cluster, joining
from grpo.cluster import describe_cluster, find_cluster_device, start_ray
from grpo.config.schema import RunConfig
from grpo.config.sections import RayConfig
from grpo.learner.rank import LearnerRank
from grpo.placement import PlacementHolder
from grpo.preparation import Prepared, ServerSide
from grpo.wiring import placement as wiring
from grpo.wiring.engines import make_engine_options
from grpo.wiring.learner import make_learner_options
from verifiers.errors import UserError

HEAD = {"CPU": 2.0, "memory": 4.0 * 2**30, "node:10.0.0.1": 1.0}
WORKER = {"CPU": 64.0, "GPU": 8.0, "memory": 512.0 * 2**30, "accelerator_type:H100": 1.0}
ADDRESS = "10.0.0.1:6379"


def node(resources, *, alive=True, host="h"):
    return {
        "NodeID": host,
        "NodeManagerHostname": host,
        "Alive": alive,
        "Resources": resources if alive else {},
    }


@pytest.fixture
def offer(monkeypatch):
    """Have a cluster of such nodes, with a build of vLLM on the machine that asks."""

    def _offer(*nodes, build="cpu"):
        monkeypatch.setattr("ray.nodes", lambda: list(nodes))
        monkeypatch.setattr(cluster, "find_build", lambda: build)

    return _offer


def make(**options):
    return RunConfig.model_validate({"model": "m", "data": {"path": "d.jsonl"}} | options)


def test_a_ray_that_does_not_come_up_in_time_is_named_with_what_to_look_at(monkeypatch):
    def start(**_):
        raise Exception("The current node timed out during startup.")  # noqa: TRY002 - as Ray does

    monkeypatch.setattr("ray.init", start)
    with pytest.raises(UserError, match=r"timed out during startup\. Usual causes .* busy"):
        start_ray(RayConfig())


@pytest.mark.parametrize(
    ("nodes", "build", "device"),
    [
        ((node(HEAD), node(WORKER)), "cpu", "cuda"),
        ((node(HEAD), node(WORKER)), "cuda", "cuda"),
        ((node(HEAD), node({"CPU": 4.0, "GPU": 0.0})), "cpu", "cpu"),
        ((node(HEAD), node(WORKER, alive=False)), "cpu", "cpu"),
        ((node(HEAD),), None, "cpu"),
        # The nodes with GPUs have yet to join.
        ((node(HEAD),), "cuda", "cuda"),
    ],
)
def test_a_cluster_computes_on_gpus_where_a_living_node_has_one(offer, nodes, build, device):
    offer(*nodes, build=build)
    assert find_cluster_device() == device


@pytest.fixture
def calls(monkeypatch):
    """What is done to have Ray and to prepare a run, in its order."""
    made: list[Any] = []

    def answer(name, value):
        def call(*_):
            made.append(name)
            return value

        return call

    monkeypatch.setattr(joining, "start_ray", answer("start", None))
    monkeypatch.setattr(joining, "stop_ray", answer("stop", None))
    monkeypatch.setattr(joining, "find_device", answer("ask this machine", "cpu"))
    monkeypatch.setattr(joining, "find_cluster_device", answer("ask the cluster", "cuda"))
    return made


def prepare(config, inputs, device):
    return Prepared(inputs=inputs, encoder=ServerSide(), prompts={}, memory=(), device=device)


INPUTS: Any = SimpleNamespace(model="m")


def test_a_run_is_prepared_for_the_device_of_its_cluster(calls):
    with joining.running_ray(make(ray={"address": ADDRESS}), INPUTS, prepare) as prepared:
        assert prepared.device == "cuda"
    assert calls == ["start", "ask the cluster", "stop"]


def test_a_run_of_this_machine_is_prepared_for_its_device(calls):
    with joining.running_ray(make(), INPUTS, prepare) as prepared:
        assert prepared.device == "cpu"
    assert calls == ["ask this machine", "start", "stop"]


@pytest.mark.parametrize("ray", [{}, {"address": ADDRESS}])
def test_a_run_that_cannot_be_prepared_leaves_the_cluster(calls, ray):
    def refuse(config, inputs, device):
        raise UserError("no")

    with (
        pytest.raises(UserError, match="no"),
        joining.running_ray(make(ray=ray), INPUTS, refuse),
    ):
        pass
    assert calls[-1] == "stop"


@pytest.fixture
def reserve(monkeypatch, offer):
    """Set a run aside on a head without GPUs and two nodes with them."""
    offer(node(HEAD, host="head"), node(WORKER, host="a"), node(WORKER, host="b"))
    monkeypatch.setattr(PlacementHolder, "reserve", lambda self: None)
    monkeypatch.setattr(PlacementHolder, "node_ids", frozenset({"a", "b"}))
    monkeypatch.setattr(wiring, "find_own_node", lambda: "head")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)

    def _reserve(config, *, with_learner=True):
        return wiring.reserve_placement(config, find_cluster_device(), with_learner=with_learner)

    return _reserve


PREPARED: Any = SimpleNamespace(inputs=INPUTS)


def test_everything_follows_from_the_gpus_of_the_cluster_on_a_machine_without_any(reserve):
    config = make(
        ray={"address": ADDRESS},
        rollout={"num_engines": 8},
        learner={"world_size": 8},
        placement="dedicated",
    )
    held = reserve(config)
    assert held.plan.rank_threads == 8
    transport = wiring.find_transport(config, held)
    assert transport == "nccl"
    engine = make_engine_options(config, PREPARED, held.plan, transport, with_learner=True)
    assert (engine.device, engine.num_gpus, engine.weight_backend) == ("cuda", 1, "nccl")
    learner = make_learner_options(config, "m", held.plan.device)
    assert (learner.use_cpu, learner.precision) == (False, "bfloat16")
    assert wiring.describe_gpu(config, "m", held.plan, transport) == "", "they are not here"


def test_an_evaluation_follows_them_too(reserve):
    config = make(ray={"address": ADDRESS}, rollout={"num_engines": 2})
    plan = reserve(config, with_learner=False).plan
    assert [bundle["GPU"] for bundle in plan.bundles] == [1, 1]
    options = make_engine_options(config, PREPARED, plan, "shared_memory", with_learner=False)
    assert options.device == "cuda"


def test_a_cluster_without_gpus_has_none_planned_for(monkeypatch, reserve, offer):
    offer(node(HEAD, host="head"), node({"CPU": 8.0}, host="a"))
    config = make(ray={"address": ADDRESS})
    held = reserve(config)
    assert held.plan.device == "cpu"
    assert wiring.find_transport(config, held) == "gloo"
    assert make_learner_options(config, "m", held.plan.device).use_cpu


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (None, r"learner rank 3 .* none on node-7: .* build for CPU.*verigrad\[gpu\]"),
        ("13.0", r"learner rank 3 .* none on node-7 \(CUDA_VISIBLE_DEVICES=.*nvidia-smi"),
    ],
)
def test_a_rank_that_is_to_have_a_gpu_does_not_quietly_compute_without(
    monkeypatch, options, build, said
):
    monkeypatch.setattr("socket.gethostname", lambda: "node-7")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.version.cuda", build)
    with pytest.raises(UserError, match=said):
        LearnerRank(replace(options, use_cpu=False), 3, 4).setup(None)


def test_the_nodes_of_a_cluster_are_written_down(offer):
    offer(node(HEAD, host="head"), node(WORKER, host="a"), node(WORKER, host="b", alive=False))
    head, worker = describe_cluster(RayConfig(address=ADDRESS))["nodes"]
    assert (head["host"], head["gpus"], head["gpu_kinds"]) == ("head", 0, [])
    assert worker == {
        "host": "a",
        "cpu_cores": 64.0,
        "gpus": 8.0,
        "gpu_kinds": ["H100"],
        "memory_gib": 512.0,
    }
    assert describe_cluster(RayConfig()) == {}, "this machine is described already"
