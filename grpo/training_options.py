"""What a run's options say about the learner, and whether they agree; no model is loaded for it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from grpo.config.schema import RunConfig
from grpo.environment import resolve_dtype
from grpo.learner.selecting import select_names
from grpo.rollout.options import LORA_RANKS, Device
from grpo.rollout.weights import DEVICE_TRANSPORTS
from verifiers.errors import UserError


def check_training_options(
    config: RunConfig, *, device: Device | None, weights: list[str] | None
) -> None:
    """Check that the options of the learner agree with each other, the device and the model.

    Args:
        config: Of the run.
        device: What the ranks compute on; None where that is not known yet.
        weights: Names of the model's weights; None where they are not known yet.

    Raises:
        UserError: Two of them do not; it names both.
    """
    for complaint in _find_disagreements(config, device):
        raise UserError(complaint)
    if weights is not None:
        modules = [name.removesuffix(".weight") for name in weights if name.endswith(".weight")]
        select_names(modules, config.lora_target_modules, option="lora_target_modules")
        select_names(weights, config.learner.frozen_layers, option="learner.frozen_layers")


def _find_disagreements(config: RunConfig, device: Device | None) -> Iterator[str]:
    if config.rollout.dtype == "float16":
        yield (
            "rollout.dtype=float16 is for evaluations: the learner computes in float32 or bfloat16 "
            "(learner.dtype), and the engines of a run have to hold the same weights. Use "
            "rollout.dtype=bfloat16 or float32."
        )
    if config.lora_r and config.learner.frozen_layers:
        yield (
            f"lora_r={config.lora_r} freezes every weight of the model, so learner.frozen_layers "
            "has nothing to choose from; leave it out, and choose with lora_target_modules."
        )
    if config.lora_target_modules and not config.lora_r:
        yield "lora_target_modules is set, but lora_r=0 trains without adapters; set lora_r."
    if config.learner.reference_offload:
        yield from _find_what_offloading_lacks(config, device)
    if config.lora_push == "adapter":
        yield from _find_what_adapters_lack(config)
    if config.ref_model_sync_steps and not config.beta:
        yield (
            f"ref_model_sync_steps={config.ref_model_sync_steps} is for the reference of the KL "
            "term, but beta=0 has none; set beta, or leave it out."
        )
    if config.ref_model_sync_steps and config.lora_r:
        yield (
            f"ref_model_sync_steps={config.ref_model_sync_steps} would change the reference, but "
            f"with lora_r={config.lora_r} it is the model under the adapters, which never changes; "
            "set one of the two to 0."
        )
    known = [
        f"heldout/{d.label}/pass@{k}" for d in config.evaluation.data for k in config.evaluation.k
    ]
    if config.metric_for_best_model not in {None, *known}:
        yield (
            f"metric_for_best_model={config.metric_for_best_model!r} is not among the metrics of "
            f"evaluation.data and evaluation.k, which are: {', '.join(known) or 'none'}."
        )
    if config.optim == "adamw_8bit":
        yield from _find_what_8_bits_lack(config, device)


def _find_what_offloading_lacks(config: RunConfig, device: Device | None) -> Iterator[str]:
    lacking = {
        "beta=0 has no reference": not config.beta,
        f"with lora_r={config.lora_r} it is the model under the adapters": config.lora_r > 0,
        "the learner runs on the CPU": device == "cpu",
    }
    for reason, holds in lacking.items():
        if holds:
            yield (
                "learner.reference_offload=true would free nothing and cost a pass over each "
                f"batch: {reason}; leave it out."
            )


def _find_what_adapters_lack(config: RunConfig) -> Iterator[str]:
    if not config.lora_r:
        yield "lora_push=adapter is set, but lora_r=0 trains without adapters; set lora_r."
    if config.lora_r > LORA_RANKS[-1]:
        yield (
            f"lora_r={config.lora_r} is more than vLLM serves (at most {LORA_RANKS[-1]}); lower "
            "it, or push whole weights: lora_push=merged."
        )
    if config.rollout.weight_transport in DEVICE_TRANSPORTS:
        yield (
            f"rollout.weight_transport={config.rollout.weight_transport} carries whole weights "
            "only; leave it at auto for lora_push=adapter, which sends a few megabytes through the "
            "host's memory, or set lora_push=merged."
        )


def _find_what_8_bits_lack(config: RunConfig, device: Device | None) -> Iterator[str]:
    if device == "cpu":
        yield "optim=adamw_8bit needs a GPU, and the learner runs on the CPU; use adamw_torch."
    if config.learner.sharding == "fsdp2":
        yield (
            "optim=adamw_8bit works on whole weights, but learner.sharding=fsdp2 gives each rank a "
            "shard; use optim=adamw_torch (its state is sharded too), or learner.sharding=ddp."
        )
    if find_spec("bitsandbytes") is None:
        yield "optim=adamw_8bit needs bitsandbytes, which is missing: pip install bitsandbytes"


def describe_reference(config: RunConfig) -> str:
    """Say which weights the KL term measures the distance to."""
    if not config.beta:
        return "none (beta=0)"
    if config.lora_r:
        return f"{config.model} itself, under the adapters"
    if not config.ref_model_sync_steps:
        return f"a frozen copy of {config.model}"
    share = config.ref_model_mixup_alpha
    return (
        f"a copy of {config.model} that becomes "
        f"{'the policy' if share == 1 else f'{1 - share:g} of itself + {share:g} of the policy'} "
        f"every {config.ref_model_sync_steps} updates"
    )


def describe_packing(config: RunConfig, device: Device | None) -> str:
    """Say whether the samples of a micro-batch share a row, and why."""
    if config.learner.packing != "auto":
        packed = config.learner.packing == "on"
        return f"{'packed' if packed else 'padded'}: learner.packing={config.learner.packing}"
    if device is None:
        return "packed where flash-attention is installed and computes (GPU, bfloat16), else padded"
    if device == "cpu":
        return "padded: flash-attention, which packing pays off with, needs a GPU"
    dtype = config.rollout.dtype if config.learner.dtype == "auto" else config.learner.dtype
    if resolve_dtype(dtype, device) == "float32":
        return "padded: flash-attention does not compute in float32 (learner.dtype)"
    if find_spec("flash_attn") is None:
        return (
            "padded: flash-attention is not installed "
            "(pip install --no-build-isolation 'verigrad[flash-attn]')"
        )
    return "packed: flash-attention is installed"


def describe_trained(config: RunConfig) -> str:
    """Say which weights train."""
    if config.lora_r:
        kind = "rsLoRA" if config.use_rslora else "LoRA"
        where = ", ".join(config.lora_target_modules) or "every linear layer but the output"
        alone = ", pushed without the weights under it" if config.lora_push == "adapter" else ""
        return f"{kind} of rank {config.lora_r} on {where}{alone}"
    frozen = ", ".join(config.learner.frozen_layers)
    return f"all weights but {frozen}" if frozen else "all weights"
