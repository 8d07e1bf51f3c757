"""The story of a training run: what happens in a step, in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from grpo.assemble import assemble_batch
from grpo.collect import Collector
from grpo.data.sampler import ProblemSampler
from grpo.learner.errors import LearnerLost
from grpo.metrics import compute_rollout_metrics, compute_timing_metrics, compute_waste
from grpo.protocols import (
    BatchPolicy,
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
from grpo.stopping import StopRequested
from grpo.timing import Timeline
from grpo.values import Batch, SamplingOptions, StepReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything a run is made of; grpo/wiring.py says what each one is in practice."""

    sampler: ProblemSampler
    collector: Collector
    learner: Learner
    publisher: Publisher
    evaluator: Evaluator | None
    recorder: Recorder
    checkpointer: Checkpointer
    recovery: Recovery
    skips: SkipGuard
    schedule: Schedule
    timeline: Timeline
    sampling: SamplingOptions
    batch_policy: BatchPolicy
    group_size: int
    num_engines: int
    seed: int
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
                parts.recovery.recover(progress, error)
                parts.timeline.take()
    except StopRequested:
        save(parts, progress)
        return False
    return True


def make_step(parts: Parts, progress: Progress) -> None:
    """One step, with the checkpoint and the evaluation that are due after it."""
    parts.recorder.keep_step(run_step(parts, progress))
    if parts.schedule.checkpoint_due(progress.step):
        save(parts, progress)
    if parts.schedule.evaluation_due(progress.step):
        evaluate(parts, progress)


def run_step(parts: Parts, progress: Progress) -> StepReport:
    """One step: draw problems, sample and verify completions, learn, publish, keep."""
    step = progress.step + 1
    problems = parts.sampler.draw(step)
    groups = parts.collector.collect(
        problems, parts.sampling, group_size=parts.group_size, seed_parts=(parts.seed, step)
    )
    metrics = compute_rollout_metrics(groups)

    policy = parts.batch_policy
    batch, dropped = assemble_batch(
        groups,
        step=step,
        advantage_estimator=policy.advantage_estimator,
        scaling=policy.scaling,
        drop_groups_without_signal=policy.drop_groups_without_signal,
        mask_truncated=policy.mask_truncated,
    )
    metrics |= compute_waste(
        groups,
        drop_groups_without_signal=policy.drop_groups_without_signal,
        mask_truncated=policy.mask_truncated,
    )
    skipped = "no group has a signal"
    if batch.num_loss_tokens:
        update_metrics, skipped = learn(parts, progress, batch)
        metrics |= update_metrics

    with parts.timeline.phase("record"):
        parts.recorder.keep_rollouts(step, groups)
    progress.step = step
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
    )


def learn(parts: Parts, progress: Progress, batch: Batch) -> tuple[dict[str, float], str | None]:
    """Update the policy, put it into the engines, and prove that they serve it.

    Returns:
        Metrics, and why the policy was left as it is, if it was.
    """
    with parts.timeline.phase("update"):
        update = parts.learner.update(batch)
    parts.skips.note(batch, update.non_finite)
    for breach in update.breaches:
        parts.recorder.keep_breach(batch.step, breach)
    if update.skipped:
        return dict(update.metrics), update.skipped
    progress.policy_version += 1
    probe = batch.samples[0]
    with parts.timeline.phase("weight_push"):
        push = parts.publisher.publish(
            progress.policy_version, probe=(*probe.prompt_ids, *probe.completion_ids)
        )
    return {**update.metrics, **push}, None


def evaluate(parts: Parts, progress: Progress) -> None:
    """Score the policy on held-out problems; the time is not a step's."""
    if parts.evaluator is not None:
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
