"""The story of a training run: what happens in a step, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from grpo.assemble import BatchPolicy, assemble_batch
from grpo.gather import Gathered
from grpo.learner.errors import LearnerLost
from grpo.ledger import PromptLedger
from grpo.metrics import compute_rollout_metrics, compute_timing_metrics, compute_waste
from grpo.protocols import (
    Checkpointer,
    Evaluator,
    Learner,
    Progress,
    Publisher,
    Recorder,
    Recovery,
    Schedule,
)
from grpo.skips import SkipGuard
from grpo.source import RolloutSource
from grpo.staleness import compute_staleness_metrics, split_stale
from grpo.stopping import StopRequested
from grpo.timing import Timeline
from grpo.unverified import UnverifiedGuard
from grpo.values import Batch, ScoredGroup, StepReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything a run is made of; grpo/wiring/ says what each one is in practice."""

    source: RolloutSource
    ledger: PromptLedger
    learner: Learner
    publisher: Publisher
    evaluator: Evaluator | None
    recorder: Recorder
    checkpointer: Checkpointer
    recovery: Recovery
    skips: SkipGuard
    unverified: UnverifiedGuard
    schedule: Schedule
    timeline: Timeline
    batch_policy: BatchPolicy
    reward_names: Sequence[str]
    num_engines: int
    check_stop: Callable[[], None]


def train(parts: Parts, progress: Progress) -> bool:
    """Make the steps that are left, with the evaluations and checkpoints that are due.

    Args:
        parts: Ready to go: the engines serve the learner's policy.
        progress: Where the run stands; moved forward in place.

    Returns:
        True when the run is complete, False when the user asked to stop. Either way a checkpoint is
        written.
    """
    schedule = parts.schedule
    parts.timeline.take()
    try:
        if schedule.evaluate_first or progress.step == schedule.steps:
            evaluate(parts, progress)
        while progress.step < schedule.steps:
            parts.check_stop()
            try:
                make_step(parts, progress)
            except LearnerLost as error:
                parts.source.reset()
                parts.recovery.recover(progress, error)
                parts.timeline.take()
    except StopRequested:
        save(parts, progress)
        return False
    finally:
        parts.source.reset()
    return True


def make_step(parts: Parts, progress: Progress) -> None:
    """One step, with the checkpoint and the evaluation that are due after it."""
    report = run_step(parts, progress)
    parts.recorder.keep_step(report)
    parts.unverified.note(report)
    if parts.schedule.checkpoint_due(progress.step):
        save(parts, progress)
    if parts.schedule.evaluation_due(progress.step):
        evaluate(parts, progress)


def run_step(parts: Parts, progress: Progress) -> StepReport:
    """One step: take sampled and verified groups, learn, publish, keep."""
    step = progress.step + 1
    gathered = parts.source.take(step, progress.num_drawn)
    metrics = compute_rollout_metrics(gathered.groups, reward_names=parts.reward_names)
    metrics |= compute_staleness_metrics(gathered.groups, progress.policy_version)
    batch, left_out, dropped = make_batch(parts, progress, gathered)
    metrics |= compute_waste(gathered.needed, left_out=left_out, policy=parts.batch_policy)
    skipped = "no group has a signal"
    if batch.num_loss_tokens:
        update_metrics, skipped = learn(parts, progress, batch)
        metrics |= update_metrics

    with parts.timeline.phase("record"):
        parts.ledger.record(step, gathered.groups)
        parts.recorder.keep_rollouts(step, gathered.groups)
    progress.step, progress.num_drawn = step, gathered.num_drawn
    parts.source.advance(step)
    times = parts.timeline.take()
    metrics |= compute_timing_metrics(
        times, num_tokens=metrics["num_tokens"], num_engines=parts.num_engines
    )
    parts.recorder.keep_trace(step, times)
    return StepReport(
        step=step,
        policy_version=progress.policy_version,
        metrics=metrics,
        dropped=dropped,
        skipped=skipped,
        remark=gathered.remark,
    )


def make_batch(
    parts: Parts, progress: Progress, gathered: Gathered
) -> tuple[Batch, Mapping[str, Sequence[ScoredGroup]], dict[str, int]]:
    """The batch of a step, the whole groups that are not in it, and all that was dropped."""
    policy = parts.batch_policy
    fresh, stale = split_stale(
        gathered.needed,
        policy_version=progress.policy_version,
        max_staleness=policy.max_staleness,
    )
    batch, dropped = assemble_batch(fresh, step=gathered.step, policy=policy)
    left_out = {"stale": stale, "surplus": gathered.groups[len(gathered.needed) :]}
    whole = {reason: sum(len(g.members) for g in groups) for reason, groups in left_out.items()}
    return batch, left_out, {**dropped, **{name: count for name, count in whole.items() if count}}


def learn(parts: Parts, progress: Progress, batch: Batch) -> tuple[dict[str, float], str | None]:
    """Update the policy, put it into the engines, and prove that they serve it.

    Returns:
        Metrics, and why the policy was left as it is, if it was.
    """
    with parts.timeline.phase("update"):
        breaches = parts.publisher.confirm(parts.check_stop)
        update = parts.learner.update(batch)
    parts.skips.note(batch, update.non_finite)
    for breach in (*breaches, *update.breaches):
        parts.recorder.keep_breach(batch.step, breach)
    if update.skipped:
        return dict(update.metrics), update.skipped
    progress.policy_version += 1
    probe = batch.samples[0]
    with parts.timeline.phase("weight_push"), parts.source.while_pushing():
        push = parts.publisher.publish(
            progress.policy_version,
            (*probe.prompt_ids, *probe.completion_ids),
            parts.check_stop,
        )
    return {**update.metrics, **push}, None


def evaluate(parts: Parts, progress: Progress) -> None:
    """Score the policy on held-out problems; the time is not a step's."""
    if parts.evaluator is not None:
        with parts.source.quiet():
            result, groups = parts.evaluator.evaluate(
                step=progress.step, policy_version=progress.policy_version
            )
        parts.recorder.keep_evaluation(result, groups)
        parts.checkpointer.consider(progress, result)
    parts.timeline.take()


def save(parts: Parts, progress: Progress) -> None:
    """Write a checkpoint; the time is not a step's."""
    parts.checkpointer.save(progress)
    parts.timeline.take()
