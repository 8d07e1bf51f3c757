"""Metrics reach the trackers, and what is missing for one is said before anything starts."""

import sys
import types

import pytest

from grpo.trackers import check_trackers, open_trackers
from verifiers.errors import UserError


class FakeWandb(types.ModuleType):
    """Stands in for wandb, which is an extra: notes what it is asked."""

    errors = types.SimpleNamespace(Error=type("Error", (Exception,), {}))

    def __init__(self, *, refuses=None):
        super().__init__("wandb")
        self.started, self.rows, self.finished, self.refuses = [], [], 0, refuses

    def init(self, **options):
        if self.refuses:
            raise self.errors.Error(self.refuses)
        self.started.append(options)
        return self

    def define_metric(self, pattern, step_metric):
        assert (pattern, step_metric) == ("*", "step")

    def log(self, row):
        self.rows.append(row)

    def finish(self):
        self.finished += 1


@pytest.fixture
def wandb(monkeypatch):
    module = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", module)
    return module


def test_tensorboard_events_hold_every_metric(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with open_trackers(["tensorboard"], tmp_path, {}) as (tracker,):
        tracker.log(1, {"loss": 0.5})
        tracker.log(2, {"loss": 0.25})
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("loss")] == [(1, 0.5), (2, 0.25)]


def test_wandb_goes_on_in_the_same_run_after_a_resume(tmp_path, wandb, monkeypatch):
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    for step in (1, 2):
        with open_trackers(["wandb"], tmp_path, {"beta": 0.1}) as (tracker,):
            tracker.log(step, {"loss": 0.5})
    first, second = wandb.started
    assert first["id"] == second["id"]
    assert (first["project"], first["config"]) == ("verigrad", {"beta": 0.1})
    assert wandb.rows == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.5}]
    assert wandb.finished == 2


def test_trackers_are_closed_when_the_run_fails(tmp_path, wandb):
    with pytest.raises(KeyboardInterrupt), open_trackers(["wandb"], tmp_path, {}):
        raise KeyboardInterrupt
    assert wandb.finished == 1


def test_a_wandb_that_does_not_start_is_the_users_to_cure(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", FakeWandb(refuses="no API key"))
    with pytest.raises(UserError, match=r"no API key.*WANDB_API_KEY"):
        open_trackers(["wandb"], tmp_path, {}).__enter__()


def test_a_tracker_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr("grpo.trackers.find_spec", lambda name: None)
    check_trackers(["tensorboard"])
    with pytest.raises(UserError, match=r"verigrad\[wandb\]"):
        check_trackers(["wandb"])
