"""The stages of a step: drawing problems, sampling, judging, batching, evaluating."""

from __future__ import annotations

from collections.abc import Callable

from grpo.algorithms.advantages import is_groupwise
from grpo.assemble import BatchPolicy
from grpo.collect import Collector
from grpo.config.schema import RunConfig
from grpo.data.difficulty import compute_acceptance
from grpo.data.sampler import ProblemSampler
from grpo.evaluation.evaluate import Evaluator
from grpo.gather import Gatherer
from grpo.head_start import HeadStart
from grpo.ledger import PromptLedger
from grpo.objective import make_objective, make_reward_policy
from grpo.preparation import Prepared
from grpo.seeding import make_random
from grpo.source import CancelFlag, DirectSource, OverlappedSource, RolloutSource
from grpo.timing import LOOP, Timeline
from grpo.wiring.engines import make_eval_sampling, make_sampling
from grpo.wiring.machinery import Machinery
from verifiers.problem import Problem


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
    overlapped = config.max_staleness > 0
    head_start = None if overlapped else make_head_start(config, machinery, timeline)

    def check() -> None:
        cancel.check()
        check_stop()
        if head_start is not None:
            head_start.look()

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
        advantage_estimator=make_objective(config).advantage_estimator,
        accept=make_acceptance(config, ledger),
        group_size=config.num_generations,
        prompts_per_step=config.prompts_per_step,
        replace=config.dynamic_sampling == "replace",
        max_gen_batches=config.max_gen_batches,
        seed=config.seed,
        head_start=head_start,
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


def make_head_start(
    config: RunConfig, machinery: Machinery, timeline: Timeline
) -> HeadStart | None:
    """What has the learner begin before all is sampled; None where a batch must be whole."""
    assert machinery.learner is not None
    policy = make_batch_policy(config)
    if not is_groupwise(policy.advantage_estimator, policy.scaling):
        return None
    return HeadStart(
        machinery.learner,
        policy=policy,
        wanted=config.prompts_per_step if config.dynamic_sampling == "replace" else None,
        timeline=timeline,
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
