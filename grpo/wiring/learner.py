"""The learner, as ranks of a run or alone in this process."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from grpo.config.schema import RunConfig
from grpo.environment import find_device, resolve_dtype
from grpo.learner.group import LearnerGroup, RankResources
from grpo.learner.options import LearnerOptions, LoraOptions, Precision
from grpo.objective import make_objective, samples_whole_distribution
from grpo.paths import find_model
from grpo.placement import PlacementHolder
from grpo.preparation import Prepared
from grpo.rollout.options import Device, available_cores
from grpo.rollout.weights import Transport
from grpo.wiring.placement import engines_sleep

if TYPE_CHECKING:
    from grpo.learner.learner import Learner


def make_learner_options(config: RunConfig, model: str, device: Device) -> LearnerOptions:
    """What the learner is told.

    Args:
        config: Of the run.
        model: What `from_pretrained` takes.
        device: What its ranks compute on.
    """
    return LearnerOptions(
        model=model,
        objective=make_objective(config),
        num_iterations=config.num_iterations,
        num_mini_batches=config.num_mini_batches,
        beta=config.beta,
        kl_target=config.kl_target,
        kl_horizon=config.kl_horizon,
        entropy_coef=config.entropy_coef,
        entropy_target=config.entropy_target,
        entropy_coef_delta=config.entropy_coef_delta,
        entropy_coef_max=config.entropy_coef_max,
        temperature=config.temperature,
        max_completion_length=config.max_completion_length,
        max_tokens_per_microbatch=config.max_tokens_per_microbatch,
        learning_rate=config.learning_rate,
        lr_scheduler=config.lr_scheduler_type,
        warmup_steps=config.warmup_steps,
        total_steps=config.steps * config.num_iterations * config.num_mini_batches,
        adam_betas=(config.adam_beta1, config.adam_beta2),
        adam_epsilon=config.adam_epsilon,
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_grad_norm,
        gradient_checkpointing=config.learner.gradient_checkpointing,
        precision=_choose_precision(config, device),
        engine_dtype=_find_engine_dtype(config, device),
        packing=config.learner.packing,
        sharding=config.learner.sharding,
        lora=make_lora(config),
        frozen_layers=config.learner.frozen_layers,
        ref_model_sync_steps=config.ref_model_sync_steps,
        ref_model_mixup_alpha=config.ref_model_mixup_alpha,
        reference_offload=config.learner.reference_offload,
        optim=config.optim,
        use_cpu=device == "cpu",
        on_breach=config.invariants.on_breach,
        max_logprob_difference=config.invariants.max_logprob_difference,
        check_sampler_logprobs=samples_whole_distribution(config),
        seed=config.seed,
    )


def make_learner(
    config: RunConfig, prepared: Prepared, placement: PlacementHolder, transport: Transport
) -> LearnerGroup:
    """The learner's ranks, not started.

    Args:
        config: Of the run.
        prepared: Its checked inputs.
        placement: What is set aside for them.
        transport: How their weights reach the engines.
    """
    plan = placement.plan
    options = make_learner_options(config, prepared.inputs.model, plan.device)
    return LearnerGroup(
        replace(options, shares_gpu=engines_sleep(config, plan)),
        world_size=config.learner.world_size,
        resources=RankResources(
            num_cpus=plan.rank.get("CPU", 0),
            num_gpus=plan.rank.get("GPU", 0),
            num_threads=plan.rank_threads or _count_threads(config),
        ),
        placement=placement.rank_group,
        transport=transport,
        num_sharing=len(plan.engine_seats),
        stall_timeout_s=config.learner.stall_timeout_s,
    )


def load_learner(config: RunConfig) -> Learner:
    """A learner of one rank in this process, with the model that the run began with."""
    import torch

    from grpo.learner.learner import Learner

    torch.set_num_threads(_count_threads(config))
    options = make_learner_options(config, find_model(config.model), find_device())
    # Whatever ranks the run had, this process is alone.
    return Learner(replace(options, sharding="ddp"))


def make_lora(config: RunConfig) -> LoraOptions | None:
    """The policy's adapters, if it has any."""
    if not config.lora_r:
        return None
    return LoraOptions(
        r=config.lora_r,
        alpha=config.lora_alpha,
        target_modules=config.lora_target_modules,
        use_rslora=config.use_rslora,
        push=config.lora_push,
    )


def _count_threads(config: RunConfig) -> int:
    return config.learner.num_threads or max(1, available_cores() // config.learner.world_size)


def _choose_precision(config: RunConfig, device: Device) -> Precision:
    """What the learner computes in: by default, what the engines do."""
    chosen = config.learner.dtype
    return _find_engine_dtype(config, device) if chosen == "auto" else chosen


def _find_engine_dtype(config: RunConfig, device: Device) -> Literal["float32", "bfloat16"]:
    return "float32" if resolve_dtype(config.rollout.dtype, device) == "float32" else "bfloat16"
