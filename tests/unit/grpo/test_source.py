"""Gathering ahead of the loop: how far, what a push and an evaluation see, and how it ends."""

from __future__ import annotations

import threading
import time

import pytest

from grpo.gather import Gathered
from grpo.source import CancelFlag, OverlappedSource
from grpo.stopping import StopRequested
from grpo.timing import Timeline

WAIT_S = 20.0


class FakeGatherer:
    """Begins a step when it is asked, and ends it when it is let."""

    def __init__(self, cancel, gate=None):
        self.cancel = cancel
        self.gate = gate
        self.begun = []

    def gather(self, step, num_drawn):
        self.begun.append((step, num_drawn))
        while self.gate is not None and not self.gate.wait(0.01):
            self.cancel.check()
        return Gathered(step=step, groups=(), num_drawn=num_drawn + 2)


@pytest.fixture
def make_source():
    sources = []

    def make(max_staleness, *, gate=None, drain=False, check_stop=lambda: None, fail=None):
        cancel = CancelFlag()
        gatherer = FakeGatherer(cancel, gate)
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
