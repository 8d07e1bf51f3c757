from types import SimpleNamespace

import pytest

from grpo.learner.errors import LearnerDied
from grpo.turns import TurnTakingLearner

BATCH = SimpleNamespace(samples=[SimpleNamespace(prompt_ids=(1, 2), completion_ids=(3,))])


class Recorder:
    """Engines, learner and publisher at once, and the order in which they were called."""

    policy_version = 7

    def __init__(self, *, remembers=True, skipped=None, error=None):
        self.calls = []
        self.remembers, self.error = remembers, error
        self.report = SimpleNamespace(skipped=skipped)

    def sleep(self):
        self.calls.append("sleep")
        return self.remembers

    def wake(self):
        self.calls.append("wake")

    def update(self, batch):
        self.calls.append("update")
        if self.error:
            raise self.error
        return self.report

    def restart(self, timeout_s):
        self.calls.append(("restart", timeout_s))

    def publish(self, policy_version, probe):
        self.calls.append(("publish", policy_version, probe))
        return {}


def take_turn(parts):
    return TurnTakingLearner(parts, parts, parts).update(BATCH)  # pyright: ignore[reportArgumentType]


def test_engines_sleep_while_the_learner_works():
    parts = Recorder()
    assert take_turn(parts) is parts.report
    assert parts.calls == ["sleep", "update", "wake"]


def test_engines_sleep_until_a_learner_that_died_has_given_its_memory_back():
    parts = Recorder(error=LearnerDied("gone"))
    turns = TurnTakingLearner(parts, parts, parts)  # pyright: ignore[reportArgumentType]
    with pytest.raises(LearnerDied):
        turns.update(BATCH)  # pyright: ignore[reportArgumentType]
    assert parts.calls == ["sleep", "update"]
    turns.restart(9.0)
    assert parts.calls == ["sleep", "update", ("restart", 9.0), "wake"]


def test_a_learner_that_died_between_updates_finds_the_engines_awake():
    parts = Recorder()
    turns = TurnTakingLearner(parts, parts, parts)  # pyright: ignore[reportArgumentType]
    turns.update(BATCH)  # pyright: ignore[reportArgumentType]
    turns.restart(9.0)
    assert parts.calls == ["sleep", "update", "wake", ("restart", 9.0)]


@pytest.mark.parametrize("remembers", [True, False])
def test_engines_that_forgot_their_weights_get_them_back_when_nothing_was_learned(remembers):
    parts = Recorder(remembers=remembers, skipped="the gradient is not finite")
    take_turn(parts)
    pushed = [("publish", 7, (1, 2, 3))]
    assert parts.calls[3:] == ([] if remembers else pushed)


def test_after_an_update_the_loop_pushes_anyway():
    parts = Recorder(remembers=False)
    take_turn(parts)
    assert parts.calls == ["sleep", "update", "wake"]
