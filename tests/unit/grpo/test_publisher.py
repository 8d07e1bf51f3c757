import math
from dataclasses import replace

import pytest

from grpo.learner.errors import LearnerDied
from grpo.learner.guard import Guard
from grpo.learner.invariants import InvariantBroken, LogprobBound
from grpo.publisher import ProvingPublisher
from grpo.rollout.errors import WeightPushFailed, WeightsRefused
from grpo.rollout.weights import WeightPayload
from grpo.stopping import StopRequested
from grpo.values import SamplingOptions, WeightPush
from grpo.witness import SamplerWitness

PROBE = (1, 2, 3)
CLOSE = LogprobBound(mean=1e-3, worst=1e-3)


class Source:
    def publish(self, version):
        return WeightPayload(
            transport="object", handle=None, plan=(), num_bytes=2_000_000, checksum="c"
        )

    def score(self, completions, *, temperature):
        assert temperature == 1.0
        assert completions == [(PROBE[:1], PROBE[1:])]
        return [(-1.0, -2.0)]


class Engines:
    def __init__(self, *scores):
        self.scores, self.versions = scores, []
        self.error: Exception | None = None

    def forget_weights(self):
        self.versions.append("forgotten")

    def publish(self, version, payload, on_wait):
        self.versions.append(version)
        if self.error:
            raise self.error
        push = WeightPush(
            policy_version=version,
            checksum="c",
            seconds=0.5,
            fetch_seconds=0.1,
            pause_seconds=0.3,
        )
        return [push, replace(push, pause_seconds=0.2)]

    def score(self, token_ids, prompt_length, on_wait):
        return self.scores


def make_publisher(*scores, bound=CLOSE):
    engines = Engines(*scores)
    return engines, ProvingPublisher(source=Source(), engines=engines, bound=bound)


def test_a_push_that_landed_reports_what_it_cost():
    engines, publisher = make_publisher((-1.0001, -2.0), (-1.0, -2.0))
    metrics = publisher.publish(7, PROBE)
    assert engines.versions == ["forgotten", 7], "never two copies beside each other"
    assert metrics["push/megabytes"] == 2.0
    assert metrics["push/engine_seconds"] == 0.5
    assert (metrics["push/fetch_seconds"], metrics["push/pause_seconds"]) == (0.1, 0.3)
    assert metrics["push/gigabytes_per_second"] == pytest.approx(0.002 / metrics["push/seconds"])
    assert metrics["push/probe_logprob_difference"] == pytest.approx(5e-5)


class Hanging(Engines):
    """Engines that never answer; what is asked of them meanwhile is whether to go on."""

    def publish(self, version, payload, on_wait):
        while True:
            on_wait()

    def finish_draws(self, draws, on_wait):
        while True:
            on_wait()

    def begin_draws(self, first_prompt, sampling):
        return "begun"


def test_engines_that_do_not_answer_are_left_out_when_the_run_is_to_stop():
    waited = []

    def stop_at_the_third_look():
        waited.append(1)
        if len(waited) % 3 == 0:
            raise StopRequested

    engines, source = Hanging(), Source()
    witness = SamplerWitness(
        scorer=source,
        engines=engines,
        sampling=SamplingOptions(max_completion_length=8, stop_token_ids=()),
        bound=CLOSE,
        guard=Guard("stop"),
    )
    publisher = ProvingPublisher(source=source, engines=engines, bound=CLOSE, witness=witness)
    assert publisher.publish(3, PROBE, stop_at_the_third_look) == {}
    witness.begin(PROBE)
    assert publisher.confirm(stop_at_the_third_look) == []
    assert len(waited) == 6


@pytest.mark.parametrize("stale", [(-1.01, -2.0), (math.nan, -2.0)])
def test_one_stale_engine_stops_the_run_by_name(stale):
    _, publisher = make_publisher((-1.0, -2.0), stale)
    with pytest.raises(InvariantBroken, match="engine 1 does not serve"):
        publisher.publish(1, PROBE)


def test_a_short_probe_may_lie_further_apart_than_a_long_one():
    bound = LogprobBound(mean=0.1)
    off = bound.allow(2) - 0.01
    assert off > bound.allow(3)
    _, publisher = make_publisher((-1.0 - off, -2.0 + off), bound=bound)
    assert publisher.prove(PROBE) == pytest.approx(off)
    _, publisher = make_publisher((-1.0 - off - 0.02, -2.0 + off + 0.02), bound=bound)
    with pytest.raises(InvariantBroken, match="engine 0 does not serve"):
        publisher.prove(PROBE)


def test_a_push_that_fails_names_the_learner_if_it_is_what_died(monkeypatch):
    engines, publisher = make_publisher((-1.0, -2.0))
    engines.error = WeightsRefused("the weights did not arrive")
    with pytest.raises(WeightPushFailed, match="did not arrive"):
        publisher.publish(1, PROBE)

    def die(_, completions, *, temperature):
        raise LearnerDied("learner rank 0 died")

    monkeypatch.setattr(Source, "score", die)
    with pytest.raises(LearnerDied):
        publisher.publish(1, PROBE)
