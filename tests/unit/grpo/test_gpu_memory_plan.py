from pathlib import Path

import pytest

from grpo.config import RunConfig, load_config
from grpo.gpu_memory_plan import GpuFacts, check_rank, describe_rank, plan_rank
from verifiers.errors import UserError

CONFIGS = Path(__file__).parents[3] / "configs"
SEVEN_B = 7_600_000_000
H100 = GpuFacts(num_bytes=80e9)
FSDP2 = {"world_size": 8, "sharding": "fsdp2"}


def plan(gpu=H100, parameters=SEVEN_B, **options):
    raw = {"model": "m", "data": [{"path": "d.jsonl"}], "output_dir": "o"}
    config = RunConfig.model_validate(raw | options)
    return plan_rank(config, parameters, gpu, dtype="bfloat16", utilization=0.5)


def measure(gpu=H100, when="an update", **options):
    return {s.part: s.num_bytes / SEVEN_B for s in plan(gpu, **options)[when]}


def test_a_7b_model_on_defaults_is_refused_with_the_cure():
    with pytest.raises(
        UserError, match=r"122 GB during an update.* 80 GB.*learner\.sharding=fsdp2"
    ):
        check_rank(plan(), H100)
    for fits in (plan(learner=FSDP2), plan(lora_r=16)):
        check_rank(fits, H100)
    assert describe_rank(plan(learner=FSDP2), H100).startswith("15.2 of 80 GB on a rank's GPU")


def test_bytes_a_weight_by_what_is_trained_and_how():
    assert measure() == {"weights": 4, "gradients": 4, "optimizer": 8}
    assert measure(lora_r=16, beta=0.1) == {"weights": 4}
    assert measure(optim="adamw_8bit")["optimizer"] == 2
    assert measure(beta=0.1)["reference"] == 4
    assert "reference" not in measure(beta=0.1, learner={"reference_offload": True})
    assert measure(beta=0.1, learner=FSDP2)["reference"] == 0.5


def test_an_engine_on_the_same_gpu_counts_while_it_is_awake():
    takes_turns = GpuFacts(num_bytes=80e9, shared=True, engine_sleeps=True, keeps_copy=True)
    assert "engine" not in measure(takes_turns, learner=FSDP2)
    awake = measure(takes_turns, "rollouts", learner=FSDP2)
    assert awake["engine"] * SEVEN_B == 40e9
    assert awake["copy for the engines"] == 2
    assert "gradients" not in awake
    both = GpuFacts(num_bytes=80e9, shared=True)
    assert measure(both, learner=FSDP2)["engine"] * SEVEN_B == 40e9
    with pytest.raises(UserError, match=r"during rollouts.*engine 40\.0"):
        check_rank(plan(takes_turns, parameters=3_000_000_000), takes_turns)


@pytest.mark.parametrize("name", ["qwen2.5-7b-math-8xh100", "qwen2.5-7b-math-2x8xh100"])
def test_what_ships_for_gpus_fits(name):
    config, _ = load_config(str(CONFIGS / f"{name}.yaml"))
    shared = config.placement == "colocated"
    gpu = GpuFacts(num_bytes=80e9, shared=shared, engine_sleeps=shared, keeps_copy=True)
    utilization = config.rollout.gpu_memory_utilization
    assert utilization is not None
    check_rank(plan_rank(config, SEVEN_B, gpu, dtype="bfloat16", utilization=utilization), gpu)
