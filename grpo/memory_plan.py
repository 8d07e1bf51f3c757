"""How much memory a run will take, by part, before anything of it is loaded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from grpo.config.schema import RunConfig
from verifiers.errors import UserError

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
# Resident memory of an idle process once its libraries are imported, measured on Linux.
_ENGINE_PROCESS = 0.60e9
_LEARNER_PROCESS = 0.45e9
_VERIFIER_PROCESS = 0.20e9
_RAY_AND_DRIVER = 0.80e9
_BYTES_PER_WEIGHT = 4
# AdamW keeps two float32 moments beside each float32 weight and its gradient.
_BYTES_PER_TRAINED_WEIGHT = 16
# A checkpoint is written from a copy of all of that but the gradient.
_BYTES_PER_COPIED_WEIGHT = 12
# Activations of a micro-batch, in units of tokens x hidden size x layers, kept for the backward
# pass.
_ACTIVATION_VALUES = 34


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One part's memory.

    Attributes:
        part: What takes it.
        num_bytes: How much.
        knob: The option that makes it smaller.
    """

    part: str
    num_bytes: float
    knob: str


def plan_memory(config: RunConfig, model: str, dtype: str) -> tuple[Share, ...]:
    """Estimate the memory of a run on one machine without a GPU.

    Args:
        config: Of the run.
        model: What `from_pretrained` takes; a hub id that is not here yet cannot be planned for.
        dtype: In which the engines hold the weights.

    Returns:
        The parts, empty where the model's size is not known yet.
    """
    parameters = count_parameters(Path(model))
    if parameters is None:
        return ()
    shape = json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))
    activations = _count_activations(config, shape["hidden_size"], shape["num_hidden_layers"]) * 4
    # Adapters are small, and the reference is the model under them.
    trained = _BYTES_PER_WEIGHT if config.lora_r else _BYTES_PER_TRAINED_WEIGHT
    copied = _BYTES_PER_WEIGHT if config.lora_r else _BYTES_PER_COPIED_WEIGHT
    reference = _BYTES_PER_WEIGHT if config.beta and not config.lora_r else 0
    engines, ranks = config.rollout.num_engines, config.learner.world_size
    copies = 1 if config.learner.sharding == "fsdp2" else ranks
    # New weights are loaded beside the ones that are served.
    served = 1 if config.lora_push == "adapter" else 2
    return (
        Share(part="Ray and driver", num_bytes=_RAY_AND_DRIVER, knob="-"),
        Share(
            part="engines",
            num_bytes=engines
            * (
                _ENGINE_PROCESS
                + served * parameters * BYTES[dtype]
                + config.rollout.kv_cache_memory_mb * 2**20
            ),
            knob="rollout.kv_cache_memory_mb, rollout.num_engines",
        ),
        Share(
            part="learner states",
            num_bytes=ranks * _LEARNER_PROCESS
            + copies * parameters * (trained + reference)
            + parameters * copied,
            knob="learner.world_size, learner.sharding=fsdp2, lora_r, beta=0 (no reference)",
        ),
        Share(
            part="learner activations",
            num_bytes=ranks * activations,
            knob="max_tokens_per_microbatch, learner.gradient_checkpointing",
        ),
        Share(
            part="weights in transit",
            # An adapter is small.
            num_bytes=0 if config.lora_push == "adapter" else 2.0 * parameters * BYTES[dtype],
            knob="-",
        ),
        Share(
            part="verifiers",
            num_bytes=config.verification.num_workers * _VERIFIER_PROCESS,
            knob="verification.num_workers",
        ),
    )


def _count_activations(config: RunConfig, width: int, layers: int) -> float:
    longest = config.max_prompt_length + config.max_completion_length
    tokens = min(config.max_tokens_per_microbatch, config.completions_per_step * longest)
    kept = (
        1 + _ACTIVATION_VALUES / layers
        if config.learner.gradient_checkpointing
        else _ACTIVATION_VALUES
    )
    return kept * layers * width * tokens


def check_memory(shares: Sequence[Share], available: float) -> None:
    """Refuse a run that will not fit.

    Raises:
        UserError: The plan is larger than what is available; the message lists the parts.
    """
    total = sum(share.num_bytes for share in shares)
    if total > available:
        parts = ", ".join(f"{share.part} {share.num_bytes / 1e9:.1f}" for share in shares)
        largest = max(shares, key=lambda share: share.num_bytes)
        raise UserError(
            f"The run would take about {total / 1e9:.1f} GB of memory, and {available / 1e9:.1f} "
            f"GB "
            f"are free. In GB: {parts}. The largest part, {largest.part}, is made smaller by "
            f"{largest.knob}."
        )


def available_memory() -> float:
    """Bytes that this process and its children could still take: the machine's, or its cgroup's."""
    return float(min(psutil.virtual_memory().available, _cgroup_headroom()))


def count_parameters(folder: Path) -> int | None:
    """Parameters of a model in safetensors files, from their headers; None where there are none."""
    from safetensors import safe_open

    files = sorted(folder.glob("*.safetensors"))
    if not files:
        return None
    total = 0
    for file in files:
        with safe_open(str(file), framework="np") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - not a mapping
                size = 1
                for length in tensors.get_slice(name).get_shape():
                    size *= length
                total += size
    return total


def read_weight_names(folder: Path) -> list[str] | None:
    """Names of a model's weights in safetensors files; None where there are none."""
    from safetensors import safe_open

    names: list[str] = []
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(str(file), framework="np") as tensors:
            names += tensors.keys()
    return names or None


def _cgroup_headroom() -> float:
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    ):
        try:
            return float(Path(limit).read_text()) - float(Path(used).read_text())
        except (OSError, ValueError):  # no such file, or "max": no limit of its own
            continue
    return float("inf")
