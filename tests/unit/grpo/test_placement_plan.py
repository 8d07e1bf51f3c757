import re

import pytest

from grpo import placement
from grpo.config import RunConfig
from grpo.placement import PlacementHolder
from grpo.placement_plan import (
    Parts,
    describe_placement,
    describe_resources,
    find_misfit,
    plan_placement,
)
from grpo.rollout.choosing import Between, choose_transport, find_backend
from grpo.wiring import placement as wiring
from verifiers.errors import UserError

TWO_NODES = [{"CPU": 2.0, "memory": 1e9}, {"CPU": 2.0}]


def gpus(number):
    return [{"CPU": 8.0, "GPU": float(number)}]


@pytest.mark.parametrize(
    ("available", "engines", "spans", "ranks", "placement", "engine", "rank", "num_bundles"),
    [
        (2, 1, 1, 1, "dedicated", 1, 1, 2),
        (8, 2, 2, 4, "dedicated", 2, 1, 6),
        (1, 1, 1, 1, "colocated", 0.5, 0.5, 1),
        (4, 4, 1, 4, "colocated", 0.5, 0.5, 4),
        (4, 4, 1, 2, "colocated", 0.5, 0.5, 4),
        (2, 1, 2, 0, "dedicated", 2, 1, 1),
    ],
)
def test_gpus_of_their_own_where_there_are_enough(
    available, engines, spans, ranks, placement, engine, rank, num_bundles
):
    parts = Parts(num_engines=engines, tensor_parallel_size=spans, world_size=ranks)
    plan = plan_placement(None, parts, on_gpu=True, nodes=gpus(available))
    assert plan.placement == placement
    assert (plan.engine["GPU"], plan.rank["GPU"]) == (engine, rank)
    assert len(plan.bundles) == num_bundles
    assert sum(bundle["GPU"] for bundle in plan.bundles) <= available
    assert plan.takes_turns == (placement == "colocated")


def test_a_colocated_engine_and_rank_share_a_bundle():
    parts = Parts(num_engines=2, world_size=2)
    plan = plan_placement("colocated", parts, on_gpu=True, nodes=gpus(8))
    assert plan.engine_seats == ((0, 0), (0, 1))
    assert [[bundle["GPU"] for bundle in group] for group in plan.groups] == [[1, 1]]


@pytest.mark.parametrize(
    ("nodes", "ranks", "given", "threads"),
    [
        ([{"CPU": 2.0}, {"CPU": 64.0, "GPU": 8.0}], 4, None, 16),
        ([{"CPU": 2.0}, {"CPU": 64.0, "GPU": 2.0}, {"CPU": 16.0, "GPU": 2.0}], 4, None, 8),
        ([{"CPU": 1.0, "GPU": 4.0}], 4, None, 1),
        ([{"CPU": 2.0}, {"CPU": 64.0, "GPU": 8.0}], 4, 3, 3),
    ],
)
def test_a_rank_on_a_gpu_has_its_share_of_that_nodes_cores(nodes, ranks, given, threads):
    parts = Parts(num_engines=1, world_size=ranks, rank_threads=given)
    plan = plan_placement("dedicated", parts, on_gpu=True, nodes=nodes)
    assert plan.rank_threads == threads


def test_a_cluster_whose_gpus_have_yet_to_join_is_waited_for_where_a_placement_is_named():
    parts = Parts(num_engines=1, world_size=1)
    for wanted in ("dedicated", "colocated"):
        plan = plan_placement(wanted, parts, on_gpu=True, nodes=[{"CPU": 2.0}])
        assert (plan.device, plan.rank_threads) == ("cuda", None)
    with pytest.raises(UserError, match=r"there are 0\. See with `ray status`.*verigrad\[cpu\]"):
        plan_placement(None, parts, on_gpu=True, nodes=[{"CPU": 2.0}])


@pytest.mark.parametrize(
    ("available", "engines", "spans", "ranks", "fewest"),
    [(0, 1, 1, 1, 1), (2, 3, 1, 1, 3), (2, 1, 2, 1, 3)],
)
def test_too_few_gpus_for_either_placement_are_told(available, engines, spans, ranks, fewest):
    parts = Parts(num_engines=engines, tensor_parallel_size=spans, world_size=ranks)
    with pytest.raises(UserError, match=f"or {fewest} at least; there are {available}"):
        plan_placement(None, parts, on_gpu=True, nodes=gpus(available))


def test_an_engine_over_several_gpus_shares_none():
    parts = Parts(num_engines=1, tensor_parallel_size=2, world_size=1)
    with pytest.raises(UserError, match="placement=dedicated"):
        plan_placement("colocated", parts, on_gpu=True, nodes=gpus(8))


def test_on_cpu_parts_take_turns_on_all_cores_unless_told_otherwise():
    parts = Parts(num_engines=2, world_size=1)
    plan = plan_placement(None, parts, on_gpu=False, nodes=TWO_NODES)
    assert plan.placement == "colocated"
    assert not plan.takes_turns
    assert sum(bundle["CPU"] for bundle in plan.bundles) < 1
    assert plan.engine_threads is None


@pytest.mark.parametrize(
    ("ranks", "threads", "nodes", "told"),
    [
        (3, None, [{"CPU": 2.0}], "ranks of learner.num_threads=1 .* on 3 cores, and this machine"),
        (2, 2, [{"CPU": 2.0}], "ranks of learner.num_threads=2 .* on 4 cores, and this machine"),
        (2, 2, TWO_NODES, "ranks .* and the largest node has 2.*placement=dedicated"),
    ],
)
def test_more_ranks_than_cores_are_told_before_they_share_them(ranks, threads, nodes, told):
    parts = Parts(num_engines=1, world_size=ranks, rank_threads=threads)
    with pytest.raises(UserError, match=f"learner.world_size={ranks} {told}"):
        plan_placement(None, parts, on_gpu=False, nodes=nodes)


@pytest.mark.parametrize(("ranks", "threads"), [(2, None), (2, 1), (1, 2)])
def test_as_many_ranks_as_there_are_cores_share_them(ranks, threads):
    parts = Parts(num_engines=3, world_size=ranks, rank_threads=threads)
    plan = plan_placement(None, parts, on_gpu=False, nodes=TWO_NODES)
    assert plan.placement == "colocated"


def test_dedicated_cores_are_shared_out_evenly():
    parts = Parts(num_engines=2, world_size=1)
    plan = plan_placement("dedicated", parts, on_gpu=False, nodes=[{"CPU": 16.0}])
    assert [bundle["CPU"] for bundle in plan.bundles] == [5, 5, 5]
    assert (plan.engine_threads, plan.rank_threads) == (5, 5)
    assert len(plan.groups) == 3, "a part that is lost waits for no other"
    assert plan.engine_seats == ((1, 0), (2, 0))
    assert find_misfit(plan.bundles, [{"CPU": 16.0}]) is None


def test_no_part_is_planned_larger_than_a_node():
    parts = Parts(num_engines=1, world_size=1)
    plan = plan_placement("dedicated", parts, on_gpu=False, nodes=[{"CPU": 1.0}, {"CPU": 7.0}])
    assert find_misfit(plan.bundles, [{"CPU": 4.0}, {"CPU": 4.0}]) is None


def test_threads_that_the_user_gave_are_kept_and_may_not_fit():
    parts = Parts(num_engines=2, world_size=1, engine_threads=3, rank_threads=1)
    plan = plan_placement("dedicated", parts, on_gpu=False, nodes=TWO_NODES)
    assert [bundle["CPU"] for bundle in plan.bundles] == [1, 3, 3]
    misfit = find_misfit(plan.bundles, TWO_NODES)
    assert misfit == "one part alone takes 3 CPU, and the largest node has 2"
    assert find_misfit([{"CPU": 2}] * 3, TWO_NODES) == "the parts take 6 CPU, and the cluster has 4"


@pytest.mark.parametrize(
    ("engines", "ranks", "on_gpu", "words"),
    [
        (1, 1, True, "dedicated, 2 of 8 GPUs for 1 engine(s) and 1 rank(s); 6 idle: raise one"),
        (4, 4, True, "dedicated, 8 of 8 GPUs for 4 engine(s) and 4 rank(s)$"),
        (8, 8, True, "colocated, 8 of 8 GPUs for 8 engine(s) and 8 rank(s)$"),
        (2, 1, False, "colocated, CPU for 2 engine(s) and 1 rank(s)$"),
    ],
)
def test_gpus_without_work_are_named(engines, ranks, on_gpu, words):
    parts = Parts(num_engines=engines, world_size=ranks)
    plan = plan_placement(None, parts, on_gpu=on_gpu, nodes=gpus(8))
    pattern = words.replace("(", r"\(").replace(")", r"\)")
    assert re.match(pattern, describe_placement(plan, parts, gpus(8)))


def test_resources_in_words():
    words = describe_resources([{"CPU": 0.01, "GPU": 2}, {"CPU": 0.01, "GPU": 2}, {"CPU": 0.01}])
    assert words == "2 x {GPU: 2}, 1 x {CPU: 0.01}"


def test_weights_go_through_memory_on_one_node_and_over_gloo_between_several():
    assert choose_transport(None, Between(num_nodes=1)) == "shared_memory"
    assert choose_transport(None, Between(num_nodes=3)) == "gloo"
    assert choose_transport("object", Between(num_nodes=3)) == "object"


def test_a_node_that_may_be_lost_without_the_run_is_not_counted_on():
    elsewhere = Between(num_nodes=1, with_driver=False)
    assert choose_transport(None, elsewhere) == "gloo"
    assert choose_transport("shared_memory", elsewhere) == "shared_memory"
    with pytest.raises(UserError, match="is placed on 2 nodes"):
        choose_transport("shared_memory", Between(num_nodes=2))


class Cluster:
    """Ray's word on placement groups and on where the driver is."""

    def __init__(self, monkeypatch, *, driver, groups):
        self.groups = groups
        table = {"bundles_to_node_id": None}
        monkeypatch.setattr(
            placement, "placement_group_table", lambda g: table | {"bundles_to_node_id": g}
        )
        monkeypatch.setattr(wiring, "find_own_node", lambda: driver)

    def find_transport(self, chosen):
        parts = Parts(num_engines=1, world_size=1)
        plan = plan_placement(None, parts, on_gpu=False, nodes=TWO_NODES)
        holder = PlacementHolder(plan, wait_s=0.0)
        holder._groups = self.groups
        config = RunConfig.model_validate(
            {
                "model": "m",
                "data": [{"path": "d.jsonl"}],
                "output_dir": "o",
                "rollout": {"weight_transport": chosen},
            }
        )
        return wiring.find_transport(config, holder)


@pytest.mark.parametrize(
    ("groups", "chosen", "expected"),
    [
        ([{0: "a", 1: "a"}], "auto", "shared_memory"),
        ([{0: "a"}, {0: "b"}], "auto", "gloo"),
        ([{0: "b"}, {0: "b"}], "auto", "gloo"),
        ([{0: "b"}, {0: "b"}], "shared_memory", "shared_memory"),
    ],
)
def test_nodes_of_a_cluster_that_the_run_is_not_on_do_not_count(
    monkeypatch, groups, chosen, expected
):
    cluster = Cluster(monkeypatch, driver="a", groups=groups)
    assert cluster.find_transport(chosen) == expected


def test_weights_go_from_gpu_to_gpu_where_there_are_some():
    shared = Between(num_nodes=1, on_gpu=True, share_gpus=True)
    assert choose_transport(None, shared) == "ipc"
    apart = Between(num_nodes=2, on_gpu=True, apart=True)
    assert choose_transport(None, apart) == "nccl"
    too_few_ranks = Between(num_nodes=1, on_gpu=True)
    assert choose_transport(None, too_few_ranks) == "shared_memory"
    backends = [find_backend(transport) for transport in ("ipc", "nccl", "gloo", "object")]
    assert backends == ["ipc", "nccl", "host", "host"]


@pytest.mark.parametrize(
    ("wanted", "between", "why"),
    [
        ("shared_memory", Between(num_nodes=2), "2 nodes"),
        ("nccl", Between(num_nodes=1, apart=True), "computes on CPU"),
        ("nccl", Between(num_nodes=1, on_gpu=True, share_gpus=True), "placement: dedicated"),
        ("ipc", Between(num_nodes=1, on_gpu=True, apart=True), "placement: colocated"),
    ],
)
def test_a_transport_that_cannot_reach_an_engine_is_told(wanted, between, why):
    with pytest.raises(UserError, match=why):
        choose_transport(wanted, between)
