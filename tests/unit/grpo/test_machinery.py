from types import SimpleNamespace

import pytest

from grpo.placement_plan import Parts, plan_placement
from grpo.wiring.machinery import Machinery

PARTS = Parts(num_engines=2, world_size=2)


class Part:
    """Notes when it is started and when it is waited for."""

    def __init__(self, name, calls):
        self.name, self.calls = name, calls

    def start(self):
        self.calls.append(f"start {self.name}")

    def wait_ready(self, timeout_s=None):
        self.calls.append(f"await {self.name}")


def start(plan, *, with_learner=True):
    calls, laps = [], []
    machinery = object.__new__(Machinery)
    machinery.placement = SimpleNamespace(plan=plan)  # pyright: ignore[reportAttributeAccessIssue]
    machinery._start_timeout_s = 9.0
    for name in ("pool", "fleet", "learner"):
        setattr(machinery, name, Part(name, calls))
    if not with_learner:
        machinery.learner = None
    machinery.start(laps.append)
    return calls, laps


@pytest.mark.parametrize("num_gpus", [2, 4])
def test_on_shared_gpus_a_learner_starts_after_the_engines_have_measured_theirs(num_gpus):
    plan = plan_placement(None, PARTS, on_gpu=True, nodes=[{"GPU": num_gpus, "CPU": 8}])
    calls, laps = start(plan)
    shared = num_gpus == 2
    assert (calls.index("await pool") < calls.index("start learner")) == shared
    assert sorted(laps) == ["engines", "learner", "verifiers"]


def test_on_cpu_all_start_together():
    plan = plan_placement(None, PARTS, on_gpu=False, nodes=[{"CPU": 8}])
    calls, _ = start(plan)
    assert {call.split()[0] for call in calls[:3]} == {"start"}
    assert len(calls) == 6


def test_an_evaluation_has_no_learner_to_start():
    plan = plan_placement(None, PARTS, on_gpu=False, nodes=[{"CPU": 8}])
    calls, laps = start(plan, with_learner=False)
    assert "start learner" not in calls
    assert sorted(laps) == ["engines", "verifiers"]
