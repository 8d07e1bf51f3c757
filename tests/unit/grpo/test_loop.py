"""The loop with fakes around it: what runs when, what a stop leaves behind, what is counted."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from grpo.algorithms.advantages import Scaling
from grpo.assemble import BatchPolicy
from grpo.collect import Collector
from grpo.data.sampler import ProblemSampler, visit_all
from grpo.errors import RunFailed
from grpo.gather import Gatherer
from grpo.learner.errors import LearnerDied
from grpo.ledger import PromptLedger
from grpo.loop import Parts, train
from grpo.protocols import Progress, Schedule
from grpo.rewards import RewardPolicy
from grpo.skips import SkipGuard
from grpo.source import DirectSource
from grpo.stopping import StopRequested
from grpo.timing import Timeline
from grpo.unverified import UnverifiedGuard
from grpo.values import Batch, Rollout, SamplingOptions, StepReport
from grpo.waits import WORKERS
from verifiers.problem import Problem
from verifiers.verdict import Reason, Status, Verdict

PROBLEMS = [
    Problem(id=f"p{i}", prompt="?", verifier="math", reference="1", source=f"f:{i}")
    for i in range(4)
]
SAMPLING = SamplingOptions(max_completion_length=4, stop_token_ids=(0,))
VERDICTS = {
    "right": Verdict(status=Status.CORRECT, score=1.0, reason=Reason.EQUAL_TEXT, verifier="t@1"),
    "wrong": Verdict(status=Status.INCORRECT, score=0.0, reason=Reason.DIFFERENT, verifier="t@1"),
    "unknown": Verdict(status=Status.ERROR, score=None, reason=Reason.WORKER_DIED, verifier="t@1"),
}


class FakePool:
    """Answers member m of every group with the m-th outcome, the last group first."""

    def __init__(self, outcomes):
        self.outcomes = outcomes
        self.seeds = []
        self.version = 0

    def generate(self, requests, sampling, on_wait):
        for request in reversed(requests):
            self.seeds += request.seeds
            for member, outcome in enumerate(self.outcomes):
                yield Rollout(
                    problem_id=request.problem_id,
                    member=member,
                    prompt_ids=request.prompt_ids,
                    completion_ids=(5 + member, 0),
                    logprobs=(-0.5, -0.5),
                    text=outcome,
                    finish_reason="stop",
                    policy_versions=(self.version, self.version),
                    seed=request.seeds[member],
                )


class FakeFleet:
    """Judges by the completion's text, and answers at the second asking."""

    def __init__(self):
        self.waiting, self.ready = [], []

    @property
    def pending(self):
        return len(self.waiting) + len(self.ready)

    def submit(self, key, submission, *, group, group_size, on_wait=None):
        self.waiting.append((key, VERDICTS[submission.completion]))

    def finished(self, timeout_s):
        answered, self.ready, self.waiting = self.ready, self.waiting, []
        return answered


@dataclass
class Spy:
    """All parts around pool and fleet in one: notes what it is asked."""

    events: list = field(default_factory=list)
    reports: list = field(default_factory=list)
    batches: list = field(default_factory=list)
    pool: Any = None
    collector: Any = None
    traces: list = field(default_factory=list)
    metrics: dict = field(default_factory=lambda: {"loss": 0.0})
    skipped: str | None = None
    non_finite: str | None = None
    dies_at: int | None = None
    breaches: tuple[str, ...] = ()

    def update(self, batch):
        if batch.step == self.dies_at:
            self.dies_at = None
            raise LearnerDied("rank 0 died")
        self.events.append("update")
        self.batches.append(batch)
        return self

    def publish(self, policy_version, probe, on_wait):
        self.events.append(f"publish {policy_version}")
        if self.pool is not None:
            self.pool.version = policy_version
        return {"push/seconds": 0.0}

    def confirm(self, on_wait):
        return []

    def keep_rollouts(self, step, groups):
        self.events.append(f"rollouts {step}")

    def keep_breach(self, step, text):
        self.events.append(f"breach {step}: {text}")

    def keep_step(self, report):
        self.reports.append(report)

    def keep_trace(self, step, times):
        self.traces.append(times)

    def keep_evaluation(self, result, groups):
        self.events.append("evaluation kept")

    def evaluate(self, *, step, policy_version):
        self.events.append(f"evaluate {step}")
        return None, ()

    def recover(self, progress, error):
        self.events.append(f"recover {error}")
        self.pool.version = 0
        progress.step = progress.policy_version = progress.num_drawn = 0

    def save(self, progress):
        self.events.append(f"save {progress.step}")

    def consider(self, progress, result):
        pass


def make_parts(spy, outcomes, *, check_stop=lambda: None, **options):
    timeline = Timeline()
    settings = {"steps": 2, "eval_steps": 0, "save_steps": 0, "evaluate_first": True} | options
    ledger = PromptLedger("grpo")
    spy.pool = FakePool(outcomes)
    spy.collector = Collector(
        pool=spy.pool,
        fleet=FakeFleet(),
        prompts={problem.id: (1, 2) for problem in PROBLEMS},
        rewards=RewardPolicy(values={Status.CORRECT: 1.0, Status.INCORRECT: 0.0}),
        timeline=timeline,
        check_stop=check_stop,
    )
    return Parts(
        source=DirectSource(
            Gatherer(
                sampler=ProblemSampler(sets=[PROBLEMS], weights=[1.0], prompts_per_step=2, seed=0),
                collector=spy.collector,
                ledger=ledger,
                sampling=SAMPLING,
                advantage_estimator="grpo",
                accept=visit_all,
                group_size=len(outcomes),
                prompts_per_step=2,
                replace=False,
                max_gen_batches=1,
                seed=0,
            )
        ),
        ledger=ledger,
        learner=spy,
        publisher=spy,
        evaluator=spy,
        recorder=spy,
        checkpointer=spy,
        recovery=spy,
        skips=SkipGuard(lambda name, _: Path(name), max_in_a_row=2),
        unverified=UnverifiedGuard(max_in_a_row=3),
        schedule=Schedule(**settings),
        timeline=timeline,
        batch_policy=BatchPolicy(
            advantage_estimator="grpo",
            scaling=Scaling(),
            drop_groups_without_signal=True,
            mask_truncated=False,
        ),
        reward_names=(),
        num_engines=1,
        check_stop=check_stop,
    )


def test_a_breach_that_does_not_stop_the_run_is_kept():
    spy = Spy(breaches=("a check is broken",))
    train(make_parts(spy, ["right", "wrong"]), Progress())
    assert [event for event in spy.events if "breach" in event] == [
        "breach 1: a check is broken",
        "breach 2: a check is broken",
    ]


def test_a_run_evaluates_around_its_steps_and_saves_at_the_end():
    spy, progress = Spy(), Progress()
    assert train(make_parts(spy, ["right", "wrong"]), progress)
    assert spy.events == [
        "evaluate 0", "evaluation kept",
        "update", "publish 1", "rollouts 1",
        "update", "publish 2", "rollouts 2",
        "save 2", "evaluate 2", "evaluation kept",
    ]  # fmt: skip
    assert progress == Progress(step=2, policy_version=2, num_drawn=4)


def test_evaluations_and_checkpoints_come_when_they_are_due():
    spy = Spy()
    train(make_parts(spy, ["right", "wrong"], steps=5, eval_steps=2, save_steps=3), Progress())
    due = [event for event in spy.events if event.startswith(("evaluate ", "save"))]
    assert due == ["evaluate 0", "evaluate 2", "save 3", "evaluate 4", "save 5", "evaluate 5"]


def test_the_batch_is_in_problem_and_member_order_whatever_ends_first():
    spy = Spy()
    train(make_parts(spy, ["right", "wrong", "right"], steps=1), Progress())
    (batch,) = spy.batches
    assert [sample.member for sample in batch.samples] == [0, 1, 2, 0, 1, 2]
    assert batch.num_loss_tokens == 12


def test_groups_without_signal_make_no_update_and_no_version():
    spy, progress = Spy(), Progress()
    train(make_parts(spy, ["wrong", "wrong"], steps=1), progress)
    assert "update" not in spy.events
    assert progress == Progress(step=1, policy_version=0, num_drawn=2)
    assert spy.reports[0].dropped == {"no_signal": 4}


def test_too_many_updates_in_a_row_that_are_not_finite_end_the_run():
    spy = Spy(skipped="non-finite loss (nan)", non_finite="non-finite loss (nan)")
    parts = make_parts(spy, ["right", "wrong"], steps=9)
    kept = {}
    parts = replace(
        parts,
        skips=SkipGuard(lambda name, row: kept.update({name: row}) or Path(name), max_in_a_row=3),
    )
    parts.skips.restore({"in_a_row": 1})  # as the checkpoint that the run goes on from has it
    with pytest.raises(RunFailed, match=r"last 3 steps in a row.*skipped/step-000002\.json"):
        train(parts, Progress())
    assert list(kept) == ["skipped/step-000001.json", "skipped/step-000002.json"]
    batch = kept["skipped/step-000001.json"]
    assert batch["reason"] == "non-finite loss (nan)"
    assert batch["samples"][0]["completion_ids"]


def test_a_run_in_which_nothing_is_verified_any_more_ends_with_the_reasons():
    spy, progress = Spy(), Progress()
    with pytest.raises(RunFailed, match=r"last 3 steps.*worker_died 12\b.*step-000003\.jsonl"):
        train(make_parts(spy, ["unknown", "unknown"], steps=9), progress)
    assert progress.step == 3
    assert len(spy.reports) == 3, "the last step is on record as well"


def test_one_verdict_begins_the_count_anew():
    def report(**metrics):
        return StepReport(step=7, policy_version=0, metrics=metrics)

    guard = UnverifiedGuard(max_in_a_row=2)
    nothing = report(**{"not_verified/stalled": 3.0})
    for step in (nothing, report(pass_rate=0.0), nothing):
        guard.note(step)
    with pytest.raises(RunFailed, match=r"stalled 6\."):
        guard.note(nothing)


def test_a_finite_update_begins_the_count_anew():
    batch = Batch(step=1, samples=(), num_loss_tokens=0)
    guard = SkipGuard(lambda name, _: Path(name), max_in_a_row=2)
    for reason in ("non-finite loss", None, "non-finite loss", None):
        guard.note(batch, reason)
    assert guard.state() == {"in_a_row": 0}


def test_an_update_that_was_skipped_is_not_published():
    spy, progress = Spy(skipped="non-finite loss"), Progress()
    train(make_parts(spy, ["right", "wrong"], steps=1), progress)
    assert not any(event.startswith("publish") for event in spy.events)
    assert progress == Progress(step=1, policy_version=0, num_drawn=2)
    assert spy.reports[0].skipped == "non-finite loss"


def test_what_is_not_verified_leaves_the_statistics_and_is_counted():
    spy = Spy()
    train(make_parts(spy, ["right", "wrong", "unknown"], steps=1), Progress())
    (batch,) = spy.batches
    assert [sample.member for sample in batch.samples] == [0, 1, 0, 1]
    assert sum(sample.advantage for sample in batch.samples) == pytest.approx(0.0)
    assert spy.reports[0].dropped == {"unverified": 2}
    assert spy.reports[0].metrics["pass_rate"] == 0.5
    assert spy.reports[0].metrics["verdicts/error"] == pytest.approx(1 / 3)


def test_a_stop_between_events_saves_the_last_whole_step():
    spy, progress = Spy(), Progress()

    def check_stop():
        if progress.step == 1:
            raise StopRequested

    assert not train(make_parts(spy, ["right", "wrong"], check_stop=check_stop), progress)
    assert spy.events[-1] == "save 1"


def test_a_finished_run_that_is_resumed_only_evaluates():
    spy = Spy()
    parts = make_parts(spy, ["right", "wrong"], evaluate_first=False)
    assert train(parts, Progress(step=2, policy_version=2))
    assert spy.events == ["evaluate 2", "evaluation kept"]


def test_a_problem_drawn_twice_gets_two_groups_with_their_own_seeds():
    spy = Spy()
    make_parts(spy, ["right", "wrong"])
    groups = spy.collector.collect(
        [PROBLEMS[0], PROBLEMS[0]], SAMPLING, group_size=2, seed_parts=(0, 1)
    )
    seeds = [member.rollout.seed for group in groups for member in group.members]
    assert len(set(seeds)) == 4
    assert all(group.problem is PROBLEMS[0] for group in groups)


def test_a_learner_that_dies_is_recovered_and_its_steps_are_made_again():
    spy, progress = Spy(dies_at=2), Progress()
    assert train(make_parts(spy, ["right", "wrong"], evaluate_first=False), progress)
    assert spy.events[:8] == [
        "update", "publish 1", "rollouts 1",
        "recover rank 0 died",
        "update", "publish 1", "rollouts 1", "update",
    ]  # fmt: skip
    assert progress == Progress(step=2, policy_version=2, num_drawn=4)
    first, again = spy.batches[:2]
    assert first == again, "the same problems and seeds"


def test_a_completion_that_no_engine_finished_is_not_verified():
    spy = Spy()
    parts = make_parts(spy, ["right", "wrong", "right"])
    pool = spy.pool
    whole = pool.generate

    def generate(requests, sampling, on_wait):
        for rollout in whole(requests, sampling, on_wait):
            yield replace(rollout, finish_reason="abort") if rollout.member == 2 else rollout

    pool.generate = generate
    train(parts, Progress(step=1))
    (batch,) = spy.batches
    assert [sample.member for sample in batch.samples] == [0, 1, 0, 1]
    assert spy.reports[0].dropped == {"unverified": 2}


def test_leaving_in_the_middle_gives_up_what_is_being_sampled():
    spy, closed = Spy(), []

    def check_stop():
        raise StopRequested

    make_parts(spy, ["right", "wrong"], check_stop=check_stop)
    whole = spy.pool.generate

    def generate(requests, sampling, on_wait):
        try:
            yield from whole(requests, sampling, on_wait)
        finally:
            closed.append(True)

    spy.pool.generate = generate
    with pytest.raises(StopRequested):
        spy.collector.collect(PROBLEMS[:1], SAMPLING, group_size=2, seed_parts=(0, 1))
    assert closed


def test_the_phases_of_a_step_add_up_to_its_wall_time():
    spy = Spy()
    train(make_parts(spy, ["right", "wrong"]), Progress())
    for report in spy.reports:
        times = {k: v for k, v in report.metrics.items() if k.startswith("time/")}
        step = times.pop("time/step")
        assert step == pytest.approx(sum(times.values()))
        for worker in WORKERS:
            row = [v for k, v in report.metrics.items() if k.startswith(f"waits/{worker}/")]
            assert sum(row) == pytest.approx(step, rel=0.02)
