"""What a run with `lora_push: adapter` builds its engines from, and how pushes reach them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from grpo.config.schema import RunConfig
from grpo.placement_plan import Parts, plan_placement
from grpo.rollout.options import AdapterOptions
from grpo.wiring import placement
from grpo.wiring.engines import make_adapter
from grpo.wiring.learner import make_lora


def make(**options):
    return RunConfig.model_validate({"model": "m", "data": {"path": "d.jsonl"}} | options)


def test_engines_and_learner_are_told_of_the_same_adapter():
    config = make(lora_r=4, lora_push="adapter", lora_target_modules=["q_proj"])
    assert make_adapter(config) == AdapterOptions(r=4, target_modules=("q_proj",))
    lora = make_lora(config)
    assert lora is not None
    assert (lora.r, lora.target_modules, lora.push) == (4, ("q_proj",), "adapter")
    assert make_adapter(make(lora_r=4)) is None


@pytest.mark.parametrize(
    ("push", "placed", "nodes", "expected"),
    [
        ("merged", "colocated", 1, "ipc"),
        ("merged", "dedicated", 2, "nccl"),
        ("adapter", "colocated", 1, "shared_memory"),
        ("adapter", "dedicated", 2, "gloo"),
    ],
)
def test_on_gpus_adapters_go_through_the_hosts_memory(monkeypatch, push, placed, nodes, expected):
    monkeypatch.setattr(placement, "find_own_node", lambda: "n0")
    parts = Parts(num_engines=1, world_size=1)
    plan = plan_placement(placed, parts, on_gpu=True, nodes=[{"CPU": 8, "GPU": 2}])
    holder: Any = SimpleNamespace(plan=plan, node_ids={f"n{i}" for i in range(nodes)})
    config = make(lora_r=4, lora_push=push)
    assert placement.find_transport(config, holder) == expected
