"""Gathering ahead of the loop: how far, what a push and an evaluation see, and how it ends."""

from __future__ import annotations

import json
import threading
import time

import pytest

from grpo.gather import Gathered
from grpo.packed import pack_logprobs
from grpo.source import CancelFlag, OverlappedSource
from grpo.stopping import StopRequested
from grpo.timing import Timeline
from grpo.values import Rollout, ScoredGroup, ScoredRollout
from verifiers.problem import Problem
from verifiers.verdict import Reason, Status, Verdict

WAIT_S = 20.0


class FakeGatherer:
    """Begins a step when it is asked, and ends it when it is let."""

    def __init__(self, cancel, gate=None, groups=None):
        self.cancel = cancel
        self.gate = gate
        self.groups = groups or {}
        self.begun = []

    def gather(self, step, num_drawn):
        self.begun.append((step, num_drawn))
        while self.gate is not None and not self.gate.wait(0.01):
            self.cancel.check()
        return Gathered(step=step, groups=self.groups.get(step, ()), num_drawn=num_drawn + 2)


@pytest.fixture
def make_source():
    sources = []

    def make(
        max_staleness, *, gate=None, groups=None, drain=False, check_stop=lambda: None, fail=None
    ):
        cancel = CancelFlag()
        gatherer = FakeGatherer(cancel, gate, groups)
        if fail:
            gatherer.gather = fail
        sources.append(
            OverlappedSource(
                gatherer,  # pyright: ignore[reportArgumentType]
                max_staleness=max_staleness,
                drain=drain,
                timeline=Timeline(),
                cancel=cancel,
                check_stop=check_stop,
            )
        )
        return gatherer, sources[-1]

    yield make
    for source in sources:
        source.reset()


def wait_until(condition):
    give_up = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.005)


def settle(gatherer):
    """What was begun once nothing more is."""
    time.sleep(0.1)
    return [step for step, _ in gatherer.begun]


@pytest.mark.parametrize("max_staleness", [1, 2, 3])
def test_sampling_runs_ahead_by_the_bound_and_no_further(make_source, max_staleness):
    gatherer, source = make_source(max_staleness)
    for step in range(1, 6):
        gathered = source.take(step, 2 * (step - 1))
        assert (gathered.step, gathered.num_drawn) == (step, 2 * step)
        assert settle(gatherer)[-1] == step + max_staleness
        source.advance(step)


@pytest.mark.parametrize("drain", [False, True])
def test_in_flight_pushes_do_not_wait_and_draining_ones_do(make_source, drain):
    gate = threading.Event()
    gatherer, source = make_source(1, gate=gate, drain=drain)
    taker = threading.Thread(target=source.take, args=(1, 0))
    taker.start()
    wait_until(lambda: gatherer.begun)
    done = threading.Event()

    def push():
        with source.while_pushing():
            done.set()

    pusher = threading.Thread(target=push)
    pusher.start()
    assert done.wait(0.3) != drain
    gate.set()
    assert done.wait(WAIT_S)
    pusher.join()
    taker.join()


def test_nothing_is_begun_while_it_must_be_quiet(make_source):
    gatherer, source = make_source(2)
    source.take(1, 0)
    with source.quiet():
        before = settle(gatherer)
        source.advance(1)
        assert settle(gatherer) == before
    wait_until(lambda: len(gatherer.begun) > len(before))


def test_after_a_reset_gathering_begins_where_the_loop_asks(make_source):
    gate = threading.Event()
    gatherer, source = make_source(1, gate=gate)
    gate.set()
    source.take(1, 0)
    gate.clear()
    source.reset()
    gatherer.begun.clear()
    gate.set()
    assert source.take(4, 12).step == 4
    assert gatherer.begun[0] == (4, 12)


def test_a_checkpoint_keeps_what_was_gathered_ahead(make_source):
    groups = {step: (make_group(f"p{step}"),) for step in (2, 3)}
    gatherer, source = make_source(2, groups=groups)
    source.take(1, 0)
    assert settle(gatherer) == [1, 2, 3]
    kept = json.loads(json.dumps(source.state()))
    later, resumed = make_source(2)
    resumed.restore(kept)
    second, third = resumed.take(2, 2), resumed.take(3, 4)
    assert [second.step, third.step] == [2, 3]
    for found, expected in zip((second, third), groups.values(), strict=True):
        assert found.groups[0].members == expected[0].members
        assert found.groups[0].problem.id == expected[0].problem.id
    resumed.advance(3)
    assert resumed.take(4, 6).num_drawn == 8
    assert later.begun[0] == (4, 6)


def make_group(problem_id):
    rollout = Rollout(
        problem_id=problem_id,
        member=0,
        prompt_ids=(1, 2),
        completion_ids=(3,),
        logprobs=pack_logprobs([-0.1]),
        text="4",
        finish_reason="stop",
        policy_versions=(5,),
        seed=6,
    )
    verdict = Verdict(
        status=Status.CORRECT, score=1.0, reason=Reason.EQUAL_EXACT, verifier="math@1"
    )
    return ScoredGroup(
        problem=Problem(id=problem_id, prompt="1+3=", verifier="math", reference="4", source="x"),
        members=(ScoredRollout(rollout=rollout, verdict=verdict, reward=1.0),),
    )


def test_what_goes_wrong_ahead_is_raised_in_the_loop(make_source):
    def fail(step, num_drawn):
        raise ValueError("the pool is gone")

    _, source = make_source(1, fail=fail)
    with pytest.raises(ValueError, match="the pool is gone"):
        source.take(1, 0)


def test_a_stop_is_heard_while_the_loop_waits(make_source):
    def stop():
        raise StopRequested

    _, source = make_source(1, gate=threading.Event(), check_stop=stop)
    with pytest.raises(StopRequested):
        source.take(1, 0)
