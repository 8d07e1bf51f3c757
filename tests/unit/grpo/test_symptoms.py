"""Every rule finds its trouble, leaves a healthy run alone, and is not told at every step."""

import random

import pytest

from grpo.symptoms import RULES, SymptomWatch
from grpo.values import Rollout, ScoredGroup, ScoredRollout
from verifiers.problem import Problem
from verifiers.verdict import Reason, Status, Verdict

HEALTHY = {
    "reward": 0.4,
    "pass_rate": 0.4,
    "rewards/math/mean": 0.4,
    "frac_reward_zero_std": 0.3,
    "verdicts/no_answer": 0.05,
    "verdicts/error": 0.0,
    "verdicts/bad_gold": 0.0,
    "completions/clipped_ratio": 0.02,
    "completions/distinct_fraction": 0.95,
    "kl": 0.02,
    "clip_ratio/region_mean": 0.01,
    "sampling/sampling_logp_difference/mean": 0.002,
}
SICK = {
    "constant_reward": lambda i: {"rewards/math/mean": 0.0},
    "no_signal": lambda i: {"frac_reward_zero_std": 0.95},
    "truncation": lambda i: {"completions/clipped_ratio": 0.6},
    "no_answer": lambda i: {"verdicts/no_answer": 0.7},
    "unverified": lambda i: {"verdicts/error": 0.04, "verdicts/bad_gold": 0.04},
    "repetition": lambda i: {"completions/distinct_fraction": 0.125},
    "kl": lambda i: {"kl": 3.0},
    "clipping": lambda i: {"clip_ratio/region_mean": 0.5},
    "mismatch": lambda i: {"sampling/sampling_logp_difference/mean": 0.002 * i},
    "plateau": lambda i: {"pass_rate": 0.4 + (-1) ** i * 0.02},
}


def run(watch, num_steps, sick, groups=()):
    noise = random.Random(0)
    found = []
    for i in range(1, num_steps + 1):
        rising = {
            "pass_rate": 0.4 + 0.003 * i,
            "rewards/math/mean": 0.4 + 0.003 * i + noise.uniform(-0.01, 0.01),
        }
        found += watch.look(i, {**HEALTHY, **rising, **sick(i)}, groups)
    return found


def make_group(name, status, text="so it is 4"):
    verdict = Verdict(status=status, score=0.0, reason=Reason.DIFFERENT, verifier="math@1")
    rollout = Rollout(
        problem_id=name,
        member=0,
        prompt_ids=(1,),
        completion_ids=(2,),
        logprobs=(-0.5,),
        text=text,
        finish_reason="stop",
        policy_versions=(0,),
        seed=1,
    )
    problem = Problem(id=name, prompt="?", verifier="math", reference="1", source="f:1")
    member = ScoredRollout(rollout=rollout, verdict=verdict, reward=0.0)
    return ScoredGroup(problem=problem, members=(member,))


def test_every_rule_has_a_case():
    assert [rule.name for rule in RULES] == list(SICK)


def test_a_healthy_run_is_left_alone():
    assert run(SymptomWatch(), 150, lambda i: {}) == []


@pytest.mark.parametrize("name", SICK)
def test_a_rule_finds_its_trouble_and_no_other_speaks(name):
    found = run(SymptomWatch(quiet_steps=1000), 120, SICK[name])
    assert [symptom.name for symptom in found] == [name]


@pytest.mark.parametrize("name", SICK)
def test_a_rule_waits_for_its_whole_window(name):
    window = next(rule.window for rule in RULES if rule.name == name)
    assert run(SymptomWatch(), window - 1, SICK[name]) == []


def test_a_symptom_is_told_again_only_after_a_while():
    found = run(SymptomWatch(quiet_steps=20), 50, SICK["kl"])
    assert [symptom.step for symptom in found] == [5, 25, 45]


def test_metrics_that_a_run_does_not_have_are_no_trouble():
    watch = SymptomWatch()
    assert [watch.look(i, {}, ()) for i in range(1, 150)] == [[]] * 149


def test_examples_are_of_the_kind_that_is_meant_one_for_each_group():
    groups = [
        make_group("right", Status.CORRECT),
        make_group("none", Status.NO_ANSWER, text="x" * 1000),
        *(make_group(f"none-{i}", Status.NO_ANSWER) for i in range(5)),
    ]
    (symptom,) = run(SymptomWatch(), 10, SICK["no_answer"], groups)
    assert [line.split(":")[0] for line in symptom.examples] == ["none", "none-0", "none-1"]
    assert len(symptom.examples[0]) < 250
