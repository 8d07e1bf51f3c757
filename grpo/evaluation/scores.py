"""What an evaluation found: scores of every held-out set, and of every problem in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from grpo.evaluation.estimators import bootstrap_mean, clopper_pearson, compute_pass_at_k
from grpo.values import ScoredGroup
from verifiers.verdict import Status


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Estimate(_Record):
    """A mean over problems with its 95 % interval."""

    value: float
    low: float
    high: float


class ProblemScore(_Record):
    """Counts for one problem, enough to compute pass@k for any k later."""

    problem_id: str
    num_samples: int
    """Verified samples: the n of pass@k."""
    num_correct: int
    """The c of pass@k."""
    num_unverified: int
    num_truncated: int
    num_no_answer: int


class SetScore(_Record):
    """Scores of one held-out set."""

    name: str
    num_problems: int
    num_samples: int
    """Samples asked for, for each problem."""
    pass_at_k: Mapping[int, Estimate]
    num_left_out: int
    """Problems with fewer verified samples than the largest k; they are in no estimate."""
    unverified_fraction: float
    truncated_fraction: float
    no_answer_fraction: float
    mean_completion_length: float
    problems: tuple[ProblemScore, ...]


class EvaluationResult(_Record):
    """Scores of one policy."""

    step: int
    policy_version: int
    model: str
    temperature: float
    top_p: float
    max_completion_length: int
    seed: int
    seconds: float
    sets: tuple[SetScore, ...]


def score_set(
    name: str, groups: Sequence[ScoredGroup], *, num_samples: int, ks: Sequence[int], seed: int
) -> SetScore:
    """Score one held-out set.

    Args:
        name: Of the set.
        groups: One for each problem.
        num_samples: Samples asked for, for each problem.
        ks: The k of pass@k.
        seed: Of the bootstrap.
    """
    problems = tuple(_score_problem(group) for group in groups)
    usable = [problem for problem in problems if problem.num_samples >= max(ks)]
    rollouts = [member.rollout for group in groups for member in group.members]
    statuses = Counter(member.verdict.status for group in groups for member in group.members)
    total = len(rollouts)
    return SetScore(
        name=name,
        num_problems=len(problems),
        num_samples=num_samples,
        pass_at_k={k: _estimate(usable, k, seed) for k in ks} if usable else {},
        num_left_out=len(problems) - len(usable),
        unverified_fraction=(statuses[Status.BAD_GOLD] + statuses[Status.ERROR]) / total,
        truncated_fraction=sum(rollout.truncated for rollout in rollouts) / total,
        no_answer_fraction=statuses[Status.NO_ANSWER] / total,
        mean_completion_length=sum(len(rollout.completion_ids) for rollout in rollouts) / total,
        problems=problems,
    )


def _score_problem(group: ScoredGroup) -> ProblemScore:
    verdicts = [member.verdict for member in group.members]
    return ProblemScore(
        problem_id=group.problem.id,
        num_samples=sum(verdict.verified for verdict in verdicts),
        num_correct=sum(verdict.status is Status.CORRECT for verdict in verdicts),
        num_unverified=sum(not verdict.verified for verdict in verdicts),
        num_truncated=sum(member.rollout.truncated for member in group.members),
        num_no_answer=sum(verdict.status is Status.NO_ANSWER for verdict in verdicts),
    )


def _estimate(problems: Sequence[ProblemScore], k: int, seed: int) -> Estimate:
    values = [compute_pass_at_k(p.num_samples, p.num_correct, k) for p in problems]
    single = all(problem.num_samples == 1 for problem in problems)
    low, high = (
        clopper_pearson(round(sum(values)), len(values))
        if single
        else bootstrap_mean(values, seed=seed)
    )
    return Estimate(value=sum(values) / len(values), low=low, high=high)


def compare_pass_at_1(before: SetScore, after: SetScore, *, seed: int) -> Estimate:
    """Paired difference of pass@1, after minus before, over the problems that both could score."""
    old = {p.problem_id: p.num_correct / p.num_samples for p in before.problems if p.num_samples}
    differences = [
        p.num_correct / p.num_samples - old[p.problem_id]
        for p in after.problems
        if p.num_samples and p.problem_id in old
    ]
    low, high = bootstrap_mean(differences, seed=seed)
    return Estimate(value=sum(differences) / len(differences), low=low, high=high)
