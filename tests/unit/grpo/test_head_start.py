"""An update that begins before its batch is whole: the same numbers, and groups in their order."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grpo.algorithms.advantages import ADVANTAGES, SCALED, Scaling, compute_advantages, is_groupwise
from grpo.algorithms.outcomes import Outcome
from grpo.algorithms.presets import resolve_objective
from grpo.algorithms.reductions import REDUCTIONS
from grpo.assemble import BatchPolicy, assemble_batch
from grpo.head_start import HeadStart
from grpo.learner.begun_update import takes_head_start
from grpo.learner.invariants import InvariantBroken
from grpo.learner.learner import Learner
from grpo.timing import Timeline
from grpo.waits import LEARNER_TRACK, WORKED, compute_waits
from tests.unit.grpo.test_gather import EASY, MIXED, PROBLEMS, make_group

POLICY = BatchPolicy(
    advantage_estimator="grpo",
    scaling=Scaling(),
    drop_groups_without_signal=True,
    mask_truncated=False,
)


@pytest.fixture
def packed(options):
    """Options under which a group is about one micro-batch."""
    return replace(options, packing="on", beta=0.1)


def learn(options, batches, *, ahead):
    """Metrics and weights after some batches, of which so many groups each are learned ahead."""
    learner = Learner(options)
    metrics = []
    for batch, count in zip(batches, ahead, strict=True):
        for group in range(count):
            part = [s for s in batch.samples if s.problem_id == f"p{group}"]
            learner.learn_ahead(batch.step, part)
        metrics.append(dict(learner.update(batch).metrics))
    return metrics, dict(learner.named_weights())


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_an_update_with_a_head_start_is_the_same_to_the_last_bit(packed, build, reduction):
    samples = build.samples(num_groups=5)
    samples[4] = replace(samples[4], masked=True)
    options = replace(packed, objective=replace(packed.objective, loss_reduction=reduction))
    batches = [build.batch(samples, step) for step in (1, 2, 3)]
    whole, expected = learn(options, batches, ahead=[0, 0, 0])
    early, found = learn(options, batches, ahead=[4, 1, 5])
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    shares = [metrics.pop("ahead_fraction") for metrics in early]
    assert shares[0] > shares[1]
    assert 0.5 < shares[2] < 1, "the last micro-batch is the update's, on which ranks exchange"
    for one, other in zip(early, whole, strict=True):
        assert other.pop("ahead_fraction") == 0
        del one["seconds"], other["seconds"]
        assert one == other


def test_what_was_begun_of_another_step_is_forgotten(packed, build):
    batch = build.batch(build.samples(num_groups=5), step=2)
    _, expected = learn(packed, [batch], ahead=[0])
    learner = Learner(packed)
    learner.learn_ahead(1, build.samples(num_groups=4, seed=9))
    learner.update(batch)
    learner.learn_ahead(3, build.samples(num_groups=4, seed=8))
    other = Learner(packed)
    other.learn_ahead(1, build.samples(num_groups=4, seed=9))
    other.learn_ahead(2, list(batch.samples[:8]))
    other.update(batch)
    for found in (learner, other):
        assert all(torch.equal(w, expected[name]) for name, w in found.named_weights())


def test_a_batch_that_begins_otherwise_stops_the_run(packed, build):
    samples = build.samples(num_groups=5)
    for others in (
        [replace(samples[0], advantage=2.0), *samples[1:]],
        [*samples[4:], *samples[:4]],
        samples[:4],
    ):
        learner = Learner(packed)
        learner.learn_ahead(1, samples[:8])
        with pytest.raises(InvariantBroken, match=r"head_start.*learned from ahead"):
            learner.update(build.batch(others))


def test_a_learner_that_needs_the_whole_batch_takes_no_head_start(packed):
    assert takes_head_start(packed)
    for changed in (
        {"packing": "off"},
        {"num_iterations": 2},
        {"num_mini_batches": 2},
        {"shares_gpu": True},
        {"reference_offload": True},
        {"objective": resolve_objective("rloo")},  # the KL is in the reward
    ):
        assert not takes_head_start(replace(packed, **changed)), changed


REWARDS = st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=2, max_size=5)


@pytest.mark.parametrize("estimator", ADVANTAGES)
@pytest.mark.parametrize("by", ["group", "batch", "none"])
@given(groups=st.lists(REWARDS, min_size=1, max_size=4))
def test_groupwise_advantages_are_those_of_the_group_alone(estimator, by, groups):
    scaling = Scaling(by=by if estimator in SCALED else "none")
    outcomes = [[Outcome(reward=r, length=3 + i) for i, r in enumerate(g)] for g in groups]
    if is_groupwise(estimator, scaling):
        whole = compute_advantages(outcomes, estimator=estimator, scaling=scaling)
        alone = [
            compute_advantages([group], estimator=estimator, scaling=scaling)[0]
            for group in outcomes
        ]
        assert whole == alone


class SpyLearner:
    """Remembers what it is told; every call has taken a second when it is looked at."""

    def __init__(self, room):
        self.head_start_tokens = room
        self.calls = []
        self.ended = 0

    def learn_ahead(self, step, samples):
        self.calls.append((step, list(samples)))

    def find_learned_ahead(self):
        fresh = len(self.calls) - self.ended
        self.ended = len(self.calls)
        return [1.0] * fresh


def test_groups_are_passed_on_when_they_fill_micro_batches_in_order_and_once():
    # Of two tokens each, two to a group.
    groups = [make_group(problem, MIXED) for problem in PROBLEMS[:8]]
    groups[3] = make_group(PROBLEMS[3], EASY)
    learner = SpyLearner(room=7)
    start = HeadStart(learner, policy=POLICY, wanted=None, timeline=Timeline())
    for step in (1, 2):
        start.begin(step)
        for group in groups:
            start.add(group)
    batch, _ = assemble_batch(groups, step=1, policy=POLICY)
    for step in (1, 2):
        passed = [sample for at, samples in learner.calls if at == step for sample in samples]
        assert passed == list(batch.samples[: len(passed)])
        assert len(passed) > len(batch.samples) // 2
    assert all(len(samples) >= 2 for _, samples in learner.calls)


def test_surplus_groups_and_learners_that_want_all_get_nothing():
    groups = [make_group(problem, MIXED) for problem in PROBLEMS[:8]]
    learner = SpyLearner(room=1)
    start = HeadStart(learner, policy=POLICY, wanted=3, timeline=Timeline())
    start.begin(1)
    for group in groups:
        start.add(group)
    assert len(learner.calls) == 3
    learner = SpyLearner(room=None)
    start = HeadStart(learner, policy=POLICY, wanted=None, timeline=Timeline())
    for group in groups:
        start.add(group)
    start.look()
    assert learner.calls == []


def test_work_done_ahead_counts_as_the_learners():
    timeline = Timeline()
    learner = SpyLearner(room=1)
    start = HeadStart(learner, policy=POLICY, wanted=None, timeline=timeline)
    start.begin(1)
    with timeline.phase("generation"):
        start.add(make_group(PROBLEMS[0], MIXED))
        start.look()
    times = timeline.take()
    assert [span.track for span in times.spans].count(LEARNER_TRACK) == 1
    # It took a second, says the spy; within the step was less.
    waits = compute_waits(times, num_engines=1)
    assert 0 < waits["learner"][WORKED] <= times.end - times.begin
