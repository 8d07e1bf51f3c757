"""Builds the real parts of a run from its configuration; no other file does."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from grpo.checkpointer import RunCheckpointer
from grpo.cluster import count_gpus
from grpo.collect import Collector
from grpo.config.schema import RunConfig
from grpo.data.difficulty import compute_acceptance
from grpo.data.prompts import PromptEncoder
from grpo.data.sampler import ProblemSampler
from grpo.devices import GpuShares, share_gpus
from grpo.environment import find_device, resolve_dtype
from grpo.evaluation.evaluate import Evaluator
from grpo.gather import Gatherer
from grpo.learner.group import LearnerGroup, RankResources
from grpo.learner.invariants import sampler_bound
from grpo.learner.options import LearnerOptions, LoraOptions, Precision
from grpo.ledger import PromptLedger
from grpo.loop import Parts
from grpo.objective import (
    make_objective,
    make_reward_policy,
    samples_whole_distribution,
)
from grpo.paths import find_model
from grpo.preparation import Prepared
from grpo.protocols import BatchPolicy, Recorder, Schedule
from grpo.publisher import ProvingPublisher
from grpo.recovery import LearnerRecovery
from grpo.rollout.options import EngineOptions, available_cores
from grpo.rollout.pool import RolloutPool
from grpo.run_directory import RunDirectory
from grpo.seeding import make_random
from grpo.served.options import ServedOptions
from grpo.served.pool import ServedPool
from grpo.skips import SkipGuard
from grpo.source import CancelFlag, DirectSource, OverlappedSource, RolloutSource
from grpo.timing import LOOP, Timeline
from grpo.values import SamplingOptions
from sandbox.options import MAX_DEFAULT_SIZE
from verifiers.fleet import VerifierFleet
from verifiers.incident import NoteIncident
from verifiers.problem import Problem

if TYPE_CHECKING:
    from grpo.learner.learner import Learner

_START_TIMEOUT_S = 600.0


class Machinery:
    """The processes of a run on a Ray that is up: engines, verifiers and, for training, a learner.

    They are started together, since each spends much of its start waiting.

    Args:
        config: The run's.
        prepared: Its checked inputs.
        with_learner: False for an evaluation.
        note: Told what was lost.
        timeline: Told who worked when.
    """

    def __init__(
        self,
        config: RunConfig,
        prepared: Prepared,
        *,
        with_learner: bool,
        note: NoteIncident,
        timeline: Timeline,
    ) -> None:
        shares = make_gpu_shares(
            config, world_size=config.learner.world_size if with_learner else 0
        )
        self.pool = RolloutPool(
            make_engine_options(config, prepared),
            num_engines=config.rollout.num_engines,
            stall_timeout_s=config.rollout.stall_timeout_s,
            max_restarts=config.rollout.max_restarts,
            note=note,
            timeline=timeline,
            actor_options={"num_gpus": shares.engine},
        )
        self.fleet = VerifierFleet(
            specs=prepared.inputs.verifier_options,
            num_workers=config.verification.num_workers,
            max_in_flight=config.verification.max_in_flight,
            stall_timeout_s=config.verification.stall_timeout_s,
            note=note,
            # One program waits while another runs, so that no container is ever idle.
            node_threads=2 * (config.sandbox.pool_size or min(available_cores(), MAX_DEFAULT_SIZE)),
        )
        self.learner = make_learner(config, prepared, shares.rank) if with_learner else None

    def start(self, lap: Callable[[str], None]) -> None:
        """Start everything and wait until it is ready.

        Args:
            lap: Told the name of each part once it is there.
        """
        self.pool.start()
        if self.learner is not None:
            self.learner.start()
        self.fleet.start()
        self.fleet.wait_ready()
        lap("verifiers")
        if self.learner is not None:
            self.learner.wait_ready(_START_TIMEOUT_S)
            lap("learner")
        self.pool.wait_ready()
        lap("engines")

    def close(self) -> None:
        """Stop everything that was started; safe at any point of the start."""
        for part in (self.fleet, self.pool, self.learner):
            if part is not None:
                part.close()


def make_engine_options(config: RunConfig, prepared: Prepared) -> EngineOptions:
    """What the engines are built from."""
    rollout = config.rollout
    return EngineOptions(
        model=prepared.inputs.model,
        device=find_device(),
        dtype=rollout.dtype,
        seed=config.seed,
        max_model_len=rollout.max_model_len
        or config.max_prompt_length + _longest_completion(config),
        max_num_seqs=rollout.max_num_seqs,
        tensor_parallel_size=rollout.tensor_parallel_size,
        gpu_memory_utilization=rollout.gpu_memory_utilization,
        kv_cache_memory_mb=rollout.kv_cache_memory_mb,
        enforce_eager=rollout.enforce_eager,
        num_threads=rollout.num_threads,
    )


def make_gpu_shares(config: RunConfig, *, world_size: int) -> GpuShares:
    """GPUs of each engine and rank; none on CPU.

    Args:
        config: Of the run.
        world_size: Learner ranks; none for an evaluation.

    Raises:
        UserError: The cluster has too few.
    """
    if find_device() == "cpu":
        return GpuShares(engine=0.0, rank=0.0)
    return share_gpus(
        count_gpus(),
        num_engines=config.rollout.num_engines,
        tensor_parallel_size=config.rollout.tensor_parallel_size,
        world_size=world_size,
    )


def make_learner_options(config: RunConfig, model: str) -> LearnerOptions:
    """What the learner is told.

    Args:
        config: Of the run.
        model: What `from_pretrained` takes.
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
        precision=_precision(config),
        sharding=config.learner.sharding,
        lora=make_lora(config),
        frozen_layers=config.learner.frozen_layers,
        ref_model_sync_steps=config.ref_model_sync_steps,
        ref_model_mixup_alpha=config.ref_model_mixup_alpha,
        reference_offload=config.learner.reference_offload,
        optim=config.optim,
        use_cpu=find_device() == "cpu",
        on_breach=config.invariants.on_breach,
        max_logprob_difference=config.invariants.max_logprob_difference,
        check_sampler_logprobs=samples_whole_distribution(config),
        seed=config.seed,
    )


def make_learner(config: RunConfig, prepared: Prepared, gpu_share: float) -> LearnerGroup:
    """The learner's ranks, not started."""
    return LearnerGroup(
        make_learner_options(config, prepared.inputs.model),
        world_size=config.learner.world_size,
        # On CPU engines and ranks take turns on all cores, so none is set aside for a rank; a
        # bundle of Ray's must hold something, though.
        resources=RankResources(
            num_cpus=0.01, num_gpus=gpu_share, num_threads=_count_threads(config)
        ),
        stall_timeout_s=config.learner.stall_timeout_s,
    )


def load_learner(config: RunConfig) -> Learner:
    """A learner of one rank in this process, with the model that the run began with."""
    import torch

    from grpo.learner.learner import Learner

    torch.set_num_threads(_count_threads(config))
    options = make_learner_options(config, find_model(config.model))
    # Whatever ranks the run had, this process is alone.
    return Learner(replace(options, sharding="ddp"))


def _count_threads(config: RunConfig) -> int:
    return config.learner.num_threads or max(1, available_cores() // config.learner.world_size)


def make_lora(config: RunConfig) -> LoraOptions | None:
    """The policy's adapters, if it has any."""
    if not config.lora_r:
        return None
    return LoraOptions(
        r=config.lora_r,
        alpha=config.lora_alpha,
        target_modules=config.lora_target_modules,
        use_rslora=config.use_rslora,
    )


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


def make_collector(
    config: RunConfig,
    prepared: Prepared,
    machinery: Machinery,
    timeline: Timeline,
    check_stop: Callable[[], None],
    *,
    shaped: bool,
    track: str = LOOP,
) -> Collector:
    """Sampling and verification of a run.

    Args:
        config: Of the run.
        prepared: Its checked inputs.
        machinery: Its processes.
        timeline: Told when phases begin and end.
        check_stop: May raise to leave early.
        shaped: Whether rewards are those of training, or the plain value of a verdict.
        track: Of the timeline: the loop's, or another thread's.
    """
    return Collector(
        pool=machinery.pool,
        fleet=machinery.fleet,
        prompts=prepared.prompts,
        rewards=make_reward_policy(config, shaped=shaped),
        timeline=timeline,
        check_stop=check_stop,
        completion_prefix=config.prompting.completion_prefix,
        track=track,
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


def make_evaluator(config: RunConfig, prepared: Prepared, collector: Collector) -> Evaluator | None:
    """The held-out evaluation, where there is a held-out set."""
    if not prepared.inputs.eval_sets:
        return None
    evaluation = config.evaluation
    return Evaluator(
        collector=collector,
        sets=prepared.inputs.eval_sets,
        sampling=make_eval_sampling(config, prepared),
        num_samples=evaluation.num_samples,
        ks=evaluation.k,
        seed=config.seed,
        model=config.model,
    )


def make_source(
    config: RunConfig,
    prepared: Prepared,
    machinery: Machinery,
    *,
    ledger: PromptLedger,
    timeline: Timeline,
    check_stop: Callable[[], None],
) -> RolloutSource:
    """Where each step's groups come from: in turns with the learner, or ahead of it."""
    cancel = CancelFlag()

    def check() -> None:
        cancel.check()
        check_stop()

    overlapped = config.max_staleness > 0
    gatherer = Gatherer(
        sampler=make_sampler(config, prepared),
        collector=make_collector(
            config,
            prepared,
            machinery,
            timeline,
            check,
            shaped=True,
            track="rollouts" if overlapped else LOOP,
        ),
        ledger=ledger,
        sampling=make_sampling(config, prepared),
        accept=make_acceptance(config, ledger),
        group_size=config.num_generations,
        prompts_per_step=config.prompts_per_step,
        replace=config.dynamic_sampling == "replace",
        max_gen_batches=config.max_gen_batches,
        seed=config.seed,
    )
    if not overlapped:
        return DirectSource(gatherer)
    return OverlappedSource(
        gatherer,
        max_staleness=config.max_staleness,
        drain=config.weight_update == "drain",
        timeline=timeline,
        cancel=cancel,
        check_stop=check_stop,
    )


def make_acceptance(config: RunConfig, ledger: PromptLedger) -> Callable[[Problem, int], bool]:
    """Which problems are visited, by what the ledger knows of them."""

    def accept(problem: Problem, draw: int) -> bool:
        known = ledger.find(problem.id)
        chance = compute_acceptance(
            config.prompt_sampling,
            known.pass_rate if known else None,
            lowest=config.min_pass_rate,
            highest=config.max_pass_rate,
        )
        return chance >= 1 or make_random(config.seed, "difficulty", draw).random() < chance

    return accept


def make_parts(
    config: RunConfig,
    prepared: Prepared,
    machinery: Machinery,
    *,
    publisher: ProvingPublisher,
    recorder: Recorder,
    checkpointer: RunCheckpointer,
    recovery: LearnerRecovery,
    skips: SkipGuard,
    ledger: PromptLedger,
    timeline: Timeline,
    evaluate_first: bool,
    check_stop: Callable[[], None],
) -> Parts:
    """Everything the loop needs, from machinery that is ready."""
    assert machinery.learner is not None
    judging = make_collector(config, prepared, machinery, timeline, check_stop, shaped=False)
    evaluator = make_evaluator(config, prepared, judging)
    return Parts(
        source=make_source(
            config, prepared, machinery, ledger=ledger, timeline=timeline, check_stop=check_stop
        ),
        ledger=ledger,
        learner=machinery.learner,
        publisher=publisher,
        evaluator=evaluator,
        recorder=recorder,
        checkpointer=checkpointer,
        recovery=recovery,
        skips=skips,
        schedule=Schedule(
            steps=config.steps,
            eval_steps=config.eval_steps,
            save_steps=config.save_steps,
            evaluate_first=evaluate_first and evaluator is not None,
        ),
        timeline=timeline,
        batch_policy=make_batch_policy(config),
        num_engines=config.rollout.num_engines,
        check_stop=check_stop,
    )


def make_batch_policy(config: RunConfig) -> BatchPolicy:
    """How scored groups become a batch."""
    objective = make_objective(config)
    return BatchPolicy(
        advantage_estimator=objective.advantage_estimator,
        scaling=objective.scaling,
        drop_groups_without_signal=config.dynamic_sampling != "off",
        mask_truncated=config.mask_truncated_completions,
        max_staleness=config.max_staleness,
    )


def make_sampler(config: RunConfig, prepared: Prepared) -> ProblemSampler:
    """The order in which training problems come."""
    sets = list(prepared.inputs.train_sets.values())
    return ProblemSampler(
        sets=sets,
        weights=[
            data.weight if data.weight is not None else float(len(problems))
            for data, problems in zip(config.data, sets, strict=True)
        ],
        prompts_per_step=config.prompts_per_step,
        seed=config.seed,
    )


def make_recovery(
    config: RunConfig,
    machinery: Machinery,
    *,
    publisher: ProvingPublisher,
    checkpointer: RunCheckpointer,
    ledger: PromptLedger,
    directory: RunDirectory,
    probe: Sequence[int],
    note: NoteIncident,
    warn: Callable[[str], None],
) -> LearnerRecovery:
    """What is done when learner ranks die."""
    assert machinery.learner is not None
    return LearnerRecovery(
        learner=machinery.learner,
        ledger=ledger,
        publisher=publisher,
        directory=directory,
        probe=probe,
        max_restarts=config.learner.max_restarts,
        start_timeout_s=_START_TIMEOUT_S,
        settle=checkpointer.settle,
        note=note,
        warn=warn,
    )


def make_publisher(config: RunConfig, machinery: Machinery) -> ProvingPublisher:
    """The proven push of weights."""
    assert machinery.learner is not None
    return ProvingPublisher(
        source=machinery.learner,
        engines=machinery.pool,
        max_difference=sampler_bound(
            _precision(config), config.invariants.max_logprob_difference
        ).mean,
    )


def _precision(config: RunConfig) -> Precision:
    """The learner's, which follows the engines': float32, or bfloat16 with float32 masters."""
    return "float32" if resolve_dtype(config.rollout.dtype) == "float32" else "bfloat16"


def _longest_completion(config: RunConfig) -> int:
    return max(config.max_completion_length, config.evaluation.max_completion_length or 0)
