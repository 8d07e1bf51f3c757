import math

import pytest

from grpo.learner.guard import Guard
from grpo.learner.invariants import InvariantBroken, LogprobBound
from grpo.learner.options import OnBreach
from grpo.values import Rollout, SamplingOptions
from grpo.witness import NUM_TOKENS, SamplerWitness

SAMPLING = SamplingOptions(temperature=0.7, max_completion_length=99, stop_token_ids=(1,))


class Learner:
    def score(self, completions, *, temperature):
        assert temperature == 0.7
        return [(-1.0,) * len(completion) for _, completion in completions]


class Engines:
    """Engine i draws two tokens with the i-th log-probability; None has failed."""

    def __init__(self, logprobs):
        self.logprobs = logprobs
        self.asked = []

    def begin_draws(self, first_prompt, sampling):
        self.asked.append((first_prompt, sampling))
        return self.logprobs

    def finish_draws(self, draws, on_wait):
        return [(f"engine {i}", draw(value)) for i, value in enumerate(draws) if value is not None]


def draw(logprob):
    return Rollout(
        problem_id="draw",
        member=0,
        prompt_ids=(5, 6),
        completion_ids=(7, 8),
        logprobs=(logprob, logprob),
        text="",
        finish_reason="length",
        policy_versions=(3, 3),
        seed=3,
    )


def make_witness(*logprobs, on_breach: OnBreach = "stop"):
    engines = Engines(logprobs)
    return engines, SamplerWitness(
        scorer=Learner(),
        engines=engines,
        sampling=SAMPLING,
        bound=LogprobBound(mean=1e-3, worst=1e-3),
        guard=Guard(on_breach),
    )


def test_engines_that_draw_from_the_policy_pass_and_are_asked_once():
    engines, witness = make_witness(-1.0, None, -1.0005)
    assert witness.confirm() == [], "nothing was pushed yet"
    witness.begin((1, 2))
    assert witness.confirm() == []
    assert witness.confirm() == []
    ((prompt, sampling),) = engines.asked
    assert prompt == (1, 2)
    assert (sampling.temperature, sampling.stop_token_ids) == (0.7, ())
    assert sampling.max_completion_length == NUM_TOKENS


@pytest.mark.parametrize("wrong", [-1.01, math.nan])
def test_one_that_draws_otherwise_stops_the_run_by_name(wrong):
    _, witness = make_witness(-1.0, wrong)
    witness.begin((1, 2))
    with pytest.raises(InvariantBroken, match=r"sampler_logprobs.*engine 1 draws"):
        witness.confirm()


def test_a_breach_can_be_kept_instead():
    _, witness = make_witness(-2.0, on_breach="warn")
    witness.begin((1, 2))
    (breach,) = witness.confirm()
    assert "engine 0" in breach
