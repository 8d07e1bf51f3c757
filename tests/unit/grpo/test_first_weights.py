from types import SimpleNamespace
from typing import Any, cast, get_args

import pytest

from grpo.first_weights import set_off
from grpo.resuming import Start
from grpo.rollout.weights import DEVICE_TRANSPORTS, Transport

PROBE = (1, 2, 3)


class Recorder:
    """Learner, publisher and folder at once, and the order in which they were called."""

    def __init__(self):
        self.calls = []

    def load(self, folder):
        self.calls.append("load")
        return 9

    def prove(self, probe):
        self.calls.append("prove")

    def publish(self, version, probe):
        assert probe == PROBE
        self.calls.append(("publish", version))

    def forget_after(self, step):
        self.calls.append(("forget", step))


def begin(start, transport):
    parts: Any = Recorder()
    progress = set_off(parts, parts, start, parts, PROBE, transport=transport, say=lambda _: None)
    return parts.calls, progress


@pytest.mark.parametrize("transport", get_args(Transport))
def test_weights_cross_from_gpu_to_gpu_before_anything_is_sampled(transport):
    calls, progress = begin(None, transport)
    assert calls == [("publish", 0) if transport in DEVICE_TRANSPORTS else "prove"]
    assert (progress.step, progress.policy_version) == (0, 0)


@pytest.mark.parametrize("transport", get_args(Transport))
def test_a_run_that_goes_on_pushes_what_it_loaded(transport, tmp_path, monkeypatch):
    found = SimpleNamespace(step=4, policy_version=5)
    monkeypatch.setattr("grpo.first_weights.read_progress", lambda _: found)
    start = cast("Start", SimpleNamespace(checkpoint=tmp_path, directory=None))
    calls, progress = begin(start, transport)
    assert calls == ["load", ("publish", 5), ("forget", 4)]
    assert progress is found
