"""The configurations for GPUs, as far as a machine without any can check them."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo.cli import main
from grpo.config import load_config
from grpo.placement_plan import Parts, Placement, find_misfit, plan_placement

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "datasets" / "fixtures"
NODE = {"CPU": 64.0, "GPU": 8.0}
SHAPES: dict[str, tuple[Placement, list[dict[str, float]]]] = {
    "qwen2.5-7b-math-8xh100": ("colocated", [NODE]),
    "qwen2.5-7b-math-2x8xh100": ("dedicated", [NODE, NODE]),
}


@pytest.fixture(params=SHAPES)
def name(request):
    return request.param


def test_it_passes_the_dry_run(name, tiny_policy, capsys):
    """With a model and rows that are here, and lengths that the model has."""
    command = ["train", f"configs/{name}.yaml", "--dry-run", f"model={tiny_policy(tied=True)}"]
    command += ["max_prompt_length=256", "max_completion_length=128", "overlong_buffer=16"]
    command += [f"data.0.path={FIXTURES}/dapo_math_17k.jsonl", "max_tokens_per_microbatch=2048"]
    command += [f"evaluation.data.0.path={FIXTURES}/math500.jsonl"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "held-out   math500: 5 problems" in shown
    assert "on 8 rank(s) under fsdp2" in shown


def test_it_fits_the_machines_that_it_is_named_after(name):
    placement, nodes = SHAPES[name]
    config, notes = load_config(f"configs/{name}.yaml")
    assert notes == []
    assert config.placement == placement
    parts = Parts(
        num_engines=config.rollout.num_engines,
        tensor_parallel_size=config.rollout.tensor_parallel_size,
        world_size=config.learner.world_size,
    )
    plan = plan_placement(placement, parts, on_gpu=True, nodes=nodes)
    assert find_misfit(plan.bundles, nodes) is None
    wanted = sum(bundle["GPU"] for bundle in plan.bundles)
    assert wanted == sum(node["GPU"] for node in nodes)
    longest = config.max_prompt_length + config.max_completion_length
    assert config.max_tokens_per_microbatch >= longest


def test_it_says_that_nobody_has_run_it(name):
    head = (ROOT / "configs" / f"{name}.yaml").read_text()[:400]
    assert "NEVER RUN ON GPUS" in head
