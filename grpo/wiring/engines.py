"""The rollout side: engines, how they sample, and a served model in their place."""

from __future__ import annotations

import os

from grpo.config.schema import RunConfig
from grpo.data.prompts import PromptEncoder
from grpo.placement_plan import PlacementPlan
from grpo.preparation import Prepared
from grpo.rollout.choosing import find_backend
from grpo.rollout.options import AdapterOptions, EngineOptions
from grpo.rollout.weights import Transport
from grpo.served.options import ServedOptions
from grpo.served.pool import ServedPool
from grpo.values import SamplingOptions
from grpo.wiring.placement import engines_sleep, find_utilization


def make_engine_options(
    config: RunConfig,
    prepared: Prepared,
    plan: PlacementPlan,
    transport: Transport,
    *,
    with_learner: bool,
) -> EngineOptions:
    """What the engines are built from.

    Args:
        config: Of the run.
        prepared: Its checked inputs.
        plan: Their placement.
        transport: How weights reach them.
        with_learner: Whether any do.
    """
    rollout = config.rollout
    return EngineOptions(
        model=prepared.inputs.model,
        device=plan.device,
        dtype=rollout.dtype,
        seed=config.seed,
        max_model_len=rollout.max_model_len
        or config.max_prompt_length + _longest_completion(config),
        max_num_seqs=rollout.max_num_seqs,
        max_num_batched_tokens=rollout.max_num_batched_tokens,
        tensor_parallel_size=rollout.tensor_parallel_size,
        gpu_memory_utilization=find_utilization(config, plan.takes_turns),
        kv_cache_memory_mb=rollout.kv_cache_memory_mb,
        enforce_eager=rollout.enforce_eager,
        num_threads=plan.engine_threads or rollout.num_threads,
        weight_backend=find_backend(transport),
        adapter=make_adapter(config) if with_learner else None,
        can_sleep=engines_sleep(config, plan),
        engine_args=rollout.engine_args,
    )


def make_adapter(config: RunConfig) -> AdapterOptions | None:
    """The adapter that pushes carry, where they do not carry all weights."""
    if config.lora_push != "adapter":
        return None
    return AdapterOptions(r=config.lora_r, target_modules=config.lora_target_modules)


def make_sampling(config: RunConfig, prepared: Prepared) -> SamplingOptions:
    """How training rollouts are drawn."""
    return SamplingOptions(
        temperature=config.temperature,
        top_p=config.top_p,
        top_k=config.top_k or -1,
        min_p=config.min_p,
        max_completion_length=config.max_completion_length,
        stop_token_ids=prepared.encoder.stop_token_ids,
    )


def make_eval_sampling(config: RunConfig, prepared: Prepared) -> SamplingOptions:
    """How held-out problems are sampled."""
    evaluation = config.evaluation
    return SamplingOptions(
        temperature=evaluation.temperature,
        top_p=evaluation.top_p,
        top_k=evaluation.top_k or -1,
        min_p=evaluation.min_p,
        max_completion_length=evaluation.max_completion_length or config.max_completion_length,
        stop_token_ids=prepared.encoder.stop_token_ids,
    )


def make_served_pool(config: RunConfig, prepared: Prepared) -> ServedPool:
    """The served model that `served` names, as a pool."""
    served = config.served
    assert served.base_url is not None
    encoder = prepared.encoder
    texts = encoder.render if isinstance(encoder, PromptEncoder) else None
    return ServedPool(
        ServedOptions(
            base_url=served.base_url,
            model=served.model or config.model,
            api=served.api,
            api_key=os.environ.get(served.api_key_env) or None,
            max_concurrency=served.max_concurrency,
            timeout_s=served.timeout_s,
            max_retries=served.max_retries,
            requests_per_minute=served.requests_per_minute,
        ),
        {
            problem.id: texts(problem) if texts and served.api == "completions" else problem.prompt
            for problem in prepared.inputs.problems
        },
    )


def _longest_completion(config: RunConfig) -> int:
    return max(config.max_completion_length, config.evaluation.max_completion_length or 0)
