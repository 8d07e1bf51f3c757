from dataclasses import replace

import pytest

from grpo.config import RunConfig
from grpo.config.sections import OWN_ENGINE_ARGS, EngineConfig
from grpo.rollout.options import EngineOptions, resolve_options
from grpo.rollout.vllm_translation import choose_engine_args, make_engine_args
from grpo.wiring.placement import find_utilization
from verifiers.errors import UserError

CPU = EngineOptions(
    model="m", max_model_len=64, max_num_batched_tokens=8, gpu_memory_utilization=0.5
)
GPU = replace(CPU, device="cuda", can_sleep=True, max_num_seqs=8)


def choose(options):
    return choose_engine_args(resolve_options(options, num_cores=2, num_engines=1))


def test_nobody_sets_what_the_run_decides_about():
    assert choose(CPU).keys() | choose(GPU).keys() == OWN_ENGINE_ARGS


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("max_num_seqs", "set rollout.max_num_seqs"),
        ("logprobs_mode", "set by the run itself; leave it out"),
    ],
)
def test_what_the_run_decides_about_is_refused_by_name(name, cure):
    with pytest.raises(ValueError, match=cure):
        EngineConfig(engine_args={name: 1})


def test_sizes_that_nobody_gave_are_vllms_on_gpu():
    sizes = {"max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization", "block_size"}
    assert sizes.isdisjoint(choose(EngineOptions(model="m", device="cuda")))
    assert choose(EngineOptions(model="m"))["max_num_seqs"] == 256


@pytest.mark.parametrize(
    ("given", "shared", "expected"), [(None, True, 0.5), (None, False, 0.9), (0.7, True, 0.7)]
)
def test_an_engine_alone_on_its_gpu_takes_nearly_all_of_it(given, shared, expected):
    raw = {"model": "m", "data": [{"path": "d.jsonl"}], "output_dir": "o"}
    config = RunConfig.model_validate(raw | {"rollout": {"gpu_memory_utilization": given}})
    assert find_utilization(config, shared) == expected


def test_further_arguments_reach_vllm():
    arguments = make_engine_args(replace(CPU, engine_args={"quantization": "fp8"}))
    assert arguments.quantization == "fp8"
    assert arguments.logprobs_mode == "processed_logprobs"
    with pytest.raises(UserError, match=r"engine_args\.quantisation: .* but quantization"):
        make_engine_args(replace(CPU, engine_args={"quantisation": "fp8"}))
