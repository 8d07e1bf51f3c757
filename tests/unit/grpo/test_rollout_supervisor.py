"""When engines may start: what shares their GPU may need all of it for a while."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from grpo.rollout import supervisor as supervisor_module
from grpo.rollout.errors import EngineDied
from grpo.rollout.supervisor import Supervisor


class Handle:
    """An engine that is up once its actor, an event, is set."""

    def __init__(self, *, index, actor):
        self.index, self.actor, self.name = index, actor, f"engine {index}"

    def get(self, reference, *, timeout_s, doing, on_wait=lambda: None):
        return reference

    def await_ready(self, *, timeout_s, has_place):
        assert self.actor.event.wait(10)

    def close(self, reference, *, timeout_s):
        self.actor.event.set()


class Engines:
    """A supervisor of two engines, the actors that it spawned, and where there is a place."""

    def __init__(self):
        self.spawned, self.places = [], {0, 1}
        self.supervisor = Supervisor(
            num_engines=2,
            spawn=self.spawn,
            has_place=self.places.__contains__,
            policy_version=0,
            start_timeout_s=10.0,
            push_timeout_s=10.0,
            max_restarts=3,
            note=lambda _: None,
        )
        self.supervisor.start()
        self.supervisor.wait_ready()

    def spawn(self, index):
        nothing = SimpleNamespace(remote=lambda: None)
        actor = SimpleNamespace(
            index=index, event=threading.Event(), wait_ready=nothing, close=nothing
        )
        self.spawned.append(actor)
        return actor

    def lose(self, index):
        self.supervisor.replace(self.supervisor.serving()[index], EngineDied("gone"))

    def wait_until(self, condition):
        give_up = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < give_up
            time.sleep(0.01)


@pytest.fixture
def engines(monkeypatch):
    monkeypatch.setattr(supervisor_module, "EngineHandle", Handle)
    monkeypatch.setattr(supervisor_module, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(supervisor_module.ray, "kill", lambda _: None)
    engines = Engines()
    yield engines
    engines.supervisor.close(1.0)


def test_a_hold_waits_for_the_engine_that_starts(engines):
    engines.lose(1)
    engines.wait_until(lambda: len(engines.spawned) == 3)
    held = threading.Event()
    thread = threading.Thread(target=lambda: (engines.supervisor.hold_starts(), held.set()))
    thread.start()
    assert not held.wait(0.2)
    engines.spawned[2].event.set()
    assert held.wait(10)
    thread.join()
    assert set(engines.supervisor.serving()) == {0, 1}


def test_no_engine_starts_while_starts_are_held(engines):
    engines.supervisor.hold_starts()
    engines.lose(0)
    assert set(engines.supervisor.serving()) == {1}
    engines.supervisor.hold_starts()  # does not wait for what may not start
    assert len(engines.spawned) == 2
    engines.supervisor.let_start()
    engines.wait_until(lambda: len(engines.spawned) == 3)
    engines.spawned[2].event.set()
    engines.wait_until(lambda: set(engines.supervisor.serving()) == {0, 1})


def test_an_engine_without_a_node_is_not_waited_for(engines):
    engines.places.discard(1)
    engines.lose(1)
    engines.wait_until(lambda: len(engines.spawned) == 3)
    engines.supervisor.hold_starts()
    assert not engines.spawned[2].event.is_set()


def test_a_pool_that_holds_starts_can_be_closed(engines):
    engines.supervisor.hold_starts()
    engines.lose(0)
    engines.supervisor.close(1.0)
    assert len(engines.spawned) == 2
