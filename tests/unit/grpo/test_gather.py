"""Which problems a step visits, what replaces silent groups, and what is remembered."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo.data.difficulty import REVISIT, compute_acceptance
from grpo.data.sampler import ProblemSampler, visit_all
from grpo.gather import Gatherer
from grpo.ledger import PromptLedger
from grpo.staleness import compute_staleness_metrics, split_stale
from grpo.values import Rollout, SamplingOptions, ScoredGroup, ScoredRollout
from verifiers.problem import Problem
from verifiers.verdict import Reason, Status, Verdict

PROBLEMS = [
    Problem(id=f"p{i:02}", prompt="?", verifier="math", reference="1", source=f"f:{i}")
    for i in range(40)
]
SAMPLING = SamplingOptions(max_completion_length=4, stop_token_ids=(0,))
EASY, HARD, MIXED, BROKEN = (1.0, 1.0), (0.0, 0.0), (1.0, 0.0), (None, None)
STATUS = {1.0: Status.CORRECT, 0.0: Status.INCORRECT, None: Status.ERROR}


def make_group(problem, rewards):
    members = tuple(
        ScoredRollout(
            rollout=Rollout(
                problem_id=problem.id,
                member=member,
                prompt_ids=(1,),
                completion_ids=(2,),
                logprobs=(-1.0,),
                text="",
                finish_reason="stop",
                policy_versions=(0,),
                seed=member,
            ),
            verdict=Verdict(
                status=STATUS[reward], score=reward, reason=Reason.DIFFERENT, verifier="t@1"
            ),
            reward=reward,
        )
        for member, reward in enumerate(rewards)
    )
    return ScoredGroup(problem=problem, members=members)


class FakeCollector:
    """Gives each problem the rewards that `outcome` says."""

    def __init__(self, outcome):
        self.outcome = outcome
        self.rounds = []

    def collect(self, problems, sampling, *, group_size, seed_parts, on_group):
        self.rounds.append(([problem.id for problem in problems], seed_parts))
        groups = [make_group(problem, self.outcome(problem)) for problem in problems]
        for group in groups if on_group else ():
            on_group(group)
        return tuple(groups)


def make_gatherer(
    outcome, *, ledger=None, replace=True, most=4, accept=visit_all, estimator="grpo"
):
    collector = FakeCollector(outcome)
    gatherer = Gatherer(
        sampler=ProblemSampler(sets=[PROBLEMS], weights=[1.0], prompts_per_step=4, seed=0),
        collector=collector,  # pyright: ignore[reportArgumentType]
        ledger=ledger or PromptLedger("grpo"),
        sampling=SAMPLING,
        advantage_estimator=estimator,
        accept=accept,
        group_size=2,
        prompts_per_step=4,
        replace=replace,
        max_gen_batches=most,
        seed=0,
    )
    return collector, gatherer


def test_groups_without_a_signal_are_replaced_by_as_many_as_are_needed():
    hard = set()

    def outcome(problem):
        # The first two that are met are hard.
        if len(hard) < 2:
            hard.add(problem.id)
        return HARD if problem.id in hard else MIXED

    collector, gatherer = make_gatherer(outcome)
    gathered = gatherer.gather(1, 0)
    assert [len(ids) for ids, _ in collector.rounds] == [4, 2]
    assert len(gathered.needed) == 6
    assert gathered.remark is None
    assert gathered.num_drawn == 6
    first, second = (seeds for _, seeds in collector.rounds)
    assert first != second, "a problem that comes again is not sampled the same"


@pytest.mark.parametrize(
    ("rewards", "named"), [(EASY, "too easy"), (HARD, "too hard"), (BROKEN, "not verified")]
)
def test_at_the_cap_the_step_goes_on_and_names_the_prompts(rewards, named):
    collector, gatherer = make_gatherer(lambda _: rewards)
    gathered = gatherer.gather(1, 0)
    assert sum(len(ids) for ids, _ in collector.rounds) == len(gathered.groups) == 16
    assert gathered.surplus == 0
    assert gathered.remark is not None
    assert (
        "0 of 4 wanted groups have a signal after 16 problems (max_gen_batches)" in gathered.remark
    )
    assert f"{named}: {gathered.groups[0].problem.id}, " in gathered.remark
    assert all(group.problem.id in gathered.remark for group in gathered.groups)


def test_groups_that_teach_under_the_estimator_are_not_replaced():
    ledger = PromptLedger("reinforce_plus_plus")
    collector, gatherer = make_gatherer(
        lambda _: HARD, ledger=ledger, estimator="reinforce_plus_plus"
    )
    gathered = gatherer.gather(1, 0)
    assert len(collector.rounds) == 1
    assert (len(gathered.needed), gathered.remark) == (4, None)
    ledger.record(1, gathered.groups)
    assert ledger.keep_rate == 1.0


def test_the_next_step_draws_more_at_once_when_few_groups_had_a_signal():
    ledger = PromptLedger("grpo")
    outcome = lambda problem: MIXED if int(problem.id[1:]) % 2 else HARD  # noqa: E731
    for step in range(1, 20):
        _, gatherer = make_gatherer(outcome, ledger=ledger)
        ledger.record(step, gatherer.gather(step, 0).groups)
    assert 0.3 < ledger.keep_rate < 0.7
    collector, gatherer = make_gatherer(outcome, ledger=ledger)
    gatherer.gather(1, 0)
    assert len(collector.rounds[0][0]) > 4


def test_groups_beyond_what_is_wanted_are_surplus_and_not_learned_from():
    ledger = PromptLedger("grpo")
    ledger.keep_rate = 0.5
    _, gatherer = make_gatherer(lambda _: MIXED, ledger=ledger)
    gathered = gatherer.gather(1, 0)
    assert len(gathered.groups) == 8
    assert len(gathered.needed) == 4


def test_filter_samples_once_whatever_comes():
    collector, gatherer = make_gatherer(lambda _: HARD, replace=False)
    gathered = gatherer.gather(3, 8)
    assert len(collector.rounds) == 1
    assert gathered.num_drawn == 12
    assert gathered.remark is None


def test_the_ledger_remembers_tries_solutions_and_the_last_visit():
    ledger = PromptLedger("grpo")
    ledger.record(1, [make_group(PROBLEMS[0], MIXED), make_group(PROBLEMS[1], BROKEN)])
    ledger.record(3, [make_group(PROBLEMS[0], EASY)])
    entry = ledger.find("p00")
    assert entry is not None
    assert (entry.tries, entry.solved, entry.pass_rate, entry.last_seen) == (4, 3, 1.0, 3)
    assert ledger.find("p01") is None, "what was not verified says nothing of the problem"
    again = PromptLedger("grpo")
    again.restore(json.loads(json.dumps(ledger.state())))
    assert again.find("p00") == entry
    assert again.keep_rate == ledger.keep_rate
    again.restore({})
    assert again.find("p00") is None


@given(rate=st.floats(0, 1), strategy=st.sampled_from(["uniform", "pass_rate_band", "adaptive"]))
def test_every_problem_keeps_a_chance(rate, strategy):
    chance = compute_acceptance(strategy, rate, lowest=0.2, highest=0.8)
    assert REVISIT <= chance <= 1
    assert compute_acceptance(strategy, None, lowest=0.2, highest=0.8) == 1


def test_the_strategies_prefer_what_has_a_signal():
    def chance(strategy, rate):
        return compute_acceptance(strategy, rate, lowest=0.2, highest=0.8)

    assert chance("uniform", 0.0) == chance("uniform", 1.0) == 1
    assert chance("pass_rate_band", 0.0) == chance("pass_rate_band", 0.9) == REVISIT
    assert chance("pass_rate_band", 0.5) == chance("adaptive", 0.5) == 1
    assert chance("adaptive", 0.1) == pytest.approx(0.36)


def test_problems_that_are_passed_over_come_back_and_drawing_always_ends():
    sampler = ProblemSampler(sets=[PROBLEMS], weights=[1.0], prompts_per_step=4, seed=0)
    odd, drawn = sampler.take(0, 20, lambda problem, _: int(problem.id[1:]) % 2 == 1)
    assert len({problem.id for problem in odd}) == 20
    assert all(int(problem.id[1:]) % 2 for problem in odd)
    nothing, drawn = sampler.take(drawn, 3, lambda *_: False)
    assert len(nothing) == 3
    assert drawn <= 40 + len(PROBLEMS) + 3


def test_groups_that_are_too_old_are_parted_whole_and_ages_are_counted():
    groups = [make_group(problem, MIXED) for problem in PROBLEMS[:2]]
    fresh, stale = split_stale(groups, policy_version=2, max_staleness=2)
    assert (len(fresh), len(stale)) == (2, 0)
    fresh, stale = split_stale(groups, policy_version=3, max_staleness=2)
    assert (len(fresh), len(stale)) == (0, 2)
    assert compute_staleness_metrics(groups, 3) == {
        "staleness/mean": 3.0, "staleness/max": 3.0, "staleness/share_3": 1.0
    }  # fmt: skip
