"""Everything the loop needs, from machinery that is ready."""

from __future__ import annotations

from collections.abc import Callable

from grpo.checkpointer import RunCheckpointer
from grpo.config.schema import RunConfig
from grpo.ledger import PromptLedger
from grpo.loop import Parts
from grpo.objective import make_reward_policy
from grpo.preparation import Prepared
from grpo.protocols import Recorder, Schedule
from grpo.publisher import ProvingPublisher
from grpo.recovery import LearnerRecovery
from grpo.skips import SkipGuard
from grpo.source import RolloutSource
from grpo.timing import Timeline
from grpo.turns import LearnerRanks, TurnTakingLearner
from grpo.unverified import UnverifiedGuard
from grpo.wiring.machinery import Machinery
from grpo.wiring.placement import engines_sleep
from grpo.wiring.stages import make_batch_policy, make_collector, make_evaluator


def make_parts(
    config: RunConfig,
    prepared: Prepared,
    machinery: Machinery,
    *,
    learner: LearnerRanks,
    publisher: ProvingPublisher,
    recorder: Recorder,
    checkpointer: RunCheckpointer,
    recovery: LearnerRecovery,
    skips: SkipGuard,
    ledger: PromptLedger,
    source: RolloutSource,
    timeline: Timeline,
    evaluate_first: bool,
    check_stop: Callable[[], None],
) -> Parts:
    """Everything the loop needs, from machinery that is ready."""
    judging = make_collector(config, prepared, machinery, timeline, check_stop, shaped=False)
    evaluator = make_evaluator(config, prepared, judging)
    return Parts(
        source=source,
        ledger=ledger,
        learner=learner,
        publisher=publisher,
        evaluator=evaluator,
        recorder=recorder,
        checkpointer=checkpointer,
        recovery=recovery,
        skips=skips,
        unverified=UnverifiedGuard(max_in_a_row=config.max_unverified_steps),
        schedule=Schedule(
            steps=config.steps,
            eval_steps=config.eval_steps,
            save_steps=config.save_steps,
            evaluate_first=evaluate_first and evaluator is not None,
        ),
        timeline=timeline,
        batch_policy=make_batch_policy(config),
        reward_names=make_reward_policy(config).part_names,
        num_engines=config.rollout.num_engines,
        check_stop=check_stop,
    )


def make_turns(
    config: RunConfig, machinery: Machinery, publisher: ProvingPublisher
) -> LearnerRanks:
    """The learner as the loop sees it: one that shares GPUs has the engines asleep meanwhile."""
    assert machinery.learner is not None
    if engines_sleep(config, machinery.placement.plan):
        return TurnTakingLearner(machinery.learner, machinery.pool, publisher)
    return machinery.learner
