from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from grpo.rollout.engine_loop import EngineLoop
from grpo.rollout.errors import EngineFailed, WeightsRefused
from grpo.rollout.protocol import Completion
from grpo.rollout.weights import WeightPayload
from verifiers.errors import UserError

PAYLOAD = WeightPayload(transport="object", handle=None, plan=(), num_bytes=0, checksum="c")
NO_BYTES = np.empty(0, dtype=np.uint8)


def make_completion(request_id):
    return Completion(
        request_id=request_id,
        token_ids=(5,),
        logprobs=(-0.5,),
        policy_versions=(0,),
        finish_reason="stop",
        prompt_logprobs=(-1.0, -2.0),
    )


class OneStepEngine:
    """Ends every request in the step after it came; counts its steps; fails where it is told to."""

    def __init__(self):
        self.requests = []
        self.steps = 0
        self.closed = False
        self.error_in_step = None
        self.error_in_load = None
        self.gate = threading.Event()
        self.gate.set()

    @property
    def num_unfinished(self):
        return len(self.requests)

    @property
    def num_generated(self):
        return 0

    def add_scoring(self, request_id, token_ids):
        self.requests.append(request_id)

    def step(self):
        self.gate.wait(10)
        self.steps += 1
        if self.error_in_step:
            raise self.error_in_step
        ended, self.requests = self.requests, []
        return [make_completion(request_id) for request_id in ended]

    def load_weights(self, version, payload, buffer):
        if self.error_in_load:
            raise self.error_in_load
        return payload.checksum

    def close(self):
        self.closed = True


@pytest.fixture
def engine():
    return OneStepEngine()


@pytest.fixture
def loop(engine):
    loop = EngineLoop(lambda: engine)
    yield loop
    engine.gate.set()
    loop.stop()


def add(loop, *request_ids):
    loop.call(lambda engine: engine.requests.extend(request_ids))


def test_each_call_finds_its_own_completions(loop):
    loop.open_outbox("a")
    loop.open_outbox("b")
    add(loop, "a:0:0", "b:0:0", "a:0:1")
    assert [c.request_id for c in loop.take("a", 5)] == ["a:0:0", "a:0:1"]
    assert [c.request_id for c in loop.take("b", 5)] == ["b:0:0"]
    assert loop.take("a", 0) == []


def test_take_returns_as_soon_as_something_ends(loop, engine):
    loop.open_outbox("a")
    engine.gate.clear()
    add(loop, "a:0:0")
    threading.Timer(0.1, engine.gate.set).start()
    started = time.monotonic()
    assert loop.take("a", 30)
    assert time.monotonic() - started < 10


def test_take_gives_up_after_its_wait(loop):
    loop.open_outbox("a")
    assert loop.take("a", 0.01) == []


def test_an_idle_engine_is_not_stepped(loop, engine):
    loop.call(lambda engine: None)
    assert engine.steps == 0


def score(loop, token_ids):
    return loop.complete("score:1", lambda engine: engine.add_scoring("score:1", token_ids))


def test_completions_of_a_cancelled_call_are_dropped(loop):
    loop.open_outbox("a")
    loop.close_outbox("a")
    loop.open_outbox("b")
    add(loop, "a:0:0", "b:0:0")
    assert loop.take("b", 5)
    assert loop.take("a", 0) == []


def test_scoring_waits_for_its_own_request(loop):
    assert score(loop, (1, 2, 3)).prompt_logprobs == (-1.0, -2.0)


def test_progress_changes_when_something_ends_and_only_then(loop):
    loop.open_outbox("a")
    before = loop.progress
    loop.call(lambda engine: None)
    assert loop.progress == before
    add(loop, "a:0:0")
    loop.take("a", 5)
    assert loop.progress != before


def test_an_error_in_a_step_reaches_whoever_waits_and_whoever_comes_later(loop, engine):
    loop.open_outbox("a")
    engine.error_in_step = RuntimeError("out of memory")
    add(loop, "a:0:0")
    with pytest.raises(EngineFailed, match="RuntimeError: out of memory") as caught:
        loop.take("a", 5)
    assert caught.value.__cause__ is engine.error_in_step
    with pytest.raises(EngineFailed):
        loop.call(lambda engine: None)
    assert engine.closed


def test_an_error_in_a_step_reaches_a_scoring_that_waits(loop, engine):
    engine.error_in_step = RuntimeError("out of memory")
    with pytest.raises(EngineFailed, match="out of memory"):
        score(loop, (1, 2))


def test_an_error_in_a_command_is_the_askers_alone(loop):
    def fail(engine):
        raise ValueError("a prompt of 0 tokens")

    with pytest.raises(ValueError, match="0 tokens"):
        loop.call(fail)
    loop.call(lambda engine: None)


def test_refused_weights_leave_the_engine_running(loop, engine):
    engine.error_in_load = WeightsRefused("damaged")
    with pytest.raises(WeightsRefused, match="damaged"):
        loop.load_weights(1, PAYLOAD, NO_BYTES)
    engine.error_in_load = None
    checksum, pause_seconds = loop.load_weights(1, PAYLOAD, NO_BYTES)
    assert checksum == "c"
    assert pause_seconds > 0


def test_weights_that_fail_half_way_end_the_engine(loop, engine):
    engine.error_in_load = KeyError("model.layers.0")
    with pytest.raises(EngineFailed, match="version 7"):
        loop.load_weights(7, PAYLOAD, NO_BYTES)
    with pytest.raises(EngineFailed, match="version 7"):
        loop.call(lambda engine: None)
    assert engine.closed


@pytest.mark.parametrize(
    ("error", "expected"),
    [(UserError("no such model"), UserError), (OSError("disk"), EngineFailed)],
)
def test_an_engine_that_cannot_start_says_why(error, expected):
    def build():
        raise error

    loop = EngineLoop(build)
    with pytest.raises(expected, match=str(error)):
        loop.call(lambda engine: None)
    loop.stop()


def test_stopping_closes_the_engine_after_the_step_in_hand(engine):
    loop = EngineLoop(lambda: engine)
    loop.open_outbox("a")
    engine.gate.clear()
    add(loop, "a:0:0")
    threading.Timer(0.1, engine.gate.set).start()
    loop.stop()
    assert engine.closed
    assert engine.steps == 1


def test_a_closed_engine_says_so_instead_of_keeping_callers_waiting(engine):
    loop = EngineLoop(lambda: engine)
    loop.stop()
    with pytest.raises(EngineFailed, match="closed"):
        loop.call(lambda engine: None)
    assert loop.take("a", 5) == []
