"""What an engine is built from: options under vLLM's names, and each device's defaults."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from verifiers.errors import UserError

Device = Literal["cpu", "cuda"]
# Which of `vllm_transfer`'s engines takes weights: from the host's memory, or from GPU to GPU.
WeightBackend = Literal["host", "nccl", "ipc"]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]

# vLLM's blocks are 128 tokens on CPU, so that a prompt under 128 tokens never finds its prefix; 32
# is the smallest.
CPU_BLOCK_SIZE = 32
CPU_NUM_SEQS = 256

# The ranks that vLLM keeps room for; an adapter of another is kept in the next larger.
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
# The number of an engine's one adapter.
ADAPTER_ID = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterOptions:
    """The adapter that an engine computes beside its model, and that a push replaces.

    Attributes:
        r: Its rank.
        target_modules: Patterns of the layers it is beside, as the learner has them.
    """

    r: int
    target_modules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Options of one vLLM engine. None leaves the choice to the device's default, or to vLLM.

    Attributes:
        model: Folder or hub id of a model in Hugging Face format.
        device: Where it runs.
        dtype: `auto` is float32 on CPU and bfloat16 on GPU.
        seed: Of vLLM's own generators; rollouts bring their own seeds.
        max_model_len: Prompt and completion together, in tokens; None takes the model's own limit.
        max_num_seqs: Completions that are worked on at a time; more wait inside the engine.
        max_num_batched_tokens: Tokens of one engine step.
        tensor_parallel_size: Devices that one engine is spread over.
        gpu_memory_utilization: GPU only: share of a device that weights and KV cache take.
        kv_cache_memory_mb: CPU only: size of the KV cache, by default 256.
        block_size: Tokens of a KV cache block, and so of the unit that prefix caching works in.
        enable_prefix_caching: Whether the members of a group share their prompt's KV cache.
        enforce_eager: Skip graph capture. On by default on CPU, where capture costs minutes.
        num_threads: CPU only: OpenMP threads.
        weight_backend: How weights come into the workers.
        adapter: What pushes carry where they do not carry all weights.
        can_sleep: GPU only: whether the engine can give its memory back for a while.
        engine_args: Further arguments of vLLM's `EngineArgs`.
        in_process: Run the whole engine inside the actor's process instead of in children of it. On
            by default on CPU, where it makes starting two to four times faster.
    """

    model: str
    device: Device = "cpu"
    dtype: Dtype = "auto"
    seed: int = 0
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    tensor_parallel_size: int = 1
    gpu_memory_utilization: float | None = None
    kv_cache_memory_mb: int | None = None
    block_size: int | None = None
    enable_prefix_caching: bool = True
    enforce_eager: bool | None = None
    num_threads: int | None = None
    weight_backend: WeightBackend = "host"
    adapter: AdapterOptions | None = None
    can_sleep: bool = False
    engine_args: Mapping[str, Any] = field(default_factory=dict[str, Any])
    in_process: bool | None = None

    @property
    def num_gpus(self) -> int:
        """GPUs that the engine's actor asks Ray for."""
        return self.tensor_parallel_size if self.device == "cuda" else 0


def resolve_options(options: EngineOptions, *, num_cores: int, num_engines: int) -> EngineOptions:
    """Replace every None that has a default of its own, and refuse what cannot work.

    Args:
        options: As the user left them.
        num_cores: Cores of the machine.
        num_engines: Engines that share them.

    Returns:
        Options in which None means that vLLM decides.

    Raises:
        UserError: Options that contradict each other or the machine.
    """
    _check_model(options.model)
    if options.device == "cpu":
        return _resolve_cpu(options, num_cores=num_cores, num_engines=num_engines)
    return replace(
        options,
        dtype="bfloat16" if options.dtype == "auto" else options.dtype,
        kv_cache_memory_mb=None,
        enforce_eager=bool(options.enforce_eager),
        in_process=bool(options.in_process),
    )


def _resolve_cpu(options: EngineOptions, *, num_cores: int, num_engines: int) -> EngineOptions:
    if options.tensor_parallel_size != 1:
        raise UserError(
            f"tensor_parallel_size={options.tensor_parallel_size} needs as many GPUs; on CPU it "
            "must be 1. Raise num_engines instead to use more cores."
        )
    return replace(
        options,
        dtype="float32" if options.dtype == "auto" else options.dtype,
        kv_cache_memory_mb=options.kv_cache_memory_mb or 256,
        block_size=options.block_size or CPU_BLOCK_SIZE,
        max_num_seqs=options.max_num_seqs or CPU_NUM_SEQS,
        gpu_memory_utilization=None,
        enforce_eager=options.enforce_eager is not False,
        num_threads=options.num_threads or max(1, num_cores // num_engines),
        in_process=options.in_process is not False,
    )


def engine_environment(options: EngineOptions, inherited: Mapping[str, str]) -> dict[str, str]:
    """Environment variables that an engine's actor must start with.

    Args:
        options: As `resolve_options` returns them.
        inherited: The environment of the caller; what a user set there on purpose wins where it is
            harmless.
    """
    environment = {
        "VLLM_NO_USAGE_STATS": "1",
        # Errors only, from vLLM's Python and torch's C++; a user who wants more sets these.
        "VLLM_LOGGING_LEVEL": inherited.get("VLLM_LOGGING_LEVEL", "ERROR"),
        "TORCH_CPP_LOG_LEVEL": inherited.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
        "PYTHONWARNINGS": inherited.get("PYTHONWARNINGS", "ignore::FutureWarning"),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0" if options.in_process else "1",
    }
    if Path(options.model).is_dir():
        # Everything is local: do not let a missing network delay the start.
        environment["HF_HUB_OFFLINE"] = inherited.get("HF_HUB_OFFLINE", "1")
    if options.device == "cpu":
        environment |= {
            "OMP_NUM_THREADS": str(options.num_threads),
            # Threads that wait by spinning take the cores from the learner and from other engines:
            # 5 times slower.
            "OMP_WAIT_POLICY": "PASSIVE",
            # vLLM would pin every engine of the machine to the same cores.
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        }
        if options.enforce_eager:
            # With log-probs on, the first step would compile one small function for 6 s, with no
            # gain in speed.
            environment["TORCHDYNAMO_DISABLE"] = "1"
    return environment


def available_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0))


def _check_model(model: str) -> None:
    folder = Path(model)
    looks_local = folder.is_absolute() or model.startswith((".", "~"))
    if (looks_local or folder.is_dir()) and not (folder / "config.json").is_file():
        raise UserError(
            f"model={model!r} is not a model: there is no {folder / 'config.json'}. Give a folder "
            "in Hugging Face format or a hub id (owner/name)."
        )
