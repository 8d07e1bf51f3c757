"""What an evaluation found: scores of every held-out set, and of every problem in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from grpo.evaluation.estimators import compute_maj_at_k, compute_pass_at_k, compute_pass_hat_k
from grpo.evaluation.intervals import (
    compute_clustered_se,
    find_difference_interval,
    find_score_interval,
)
from grpo.evaluation.record import EvaluationRecord
from grpo.values import ScoredGroup, ScoredRollout
from verifiers.maths.canonical import write_canonical
from verifiers.verdict import Status


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Estimate(_Record):
    """A mean over problems with its 95 % interval."""

    value: float
    low: float
    high: float
    stderr: float | None = None
    """Standard error, clustered by problem; none of a single problem."""
    at_least: float | None = None
    """The mean over all problems if every sample that was not verified were wrong."""
    at_most: float | None = None
    """The same if every one of them were right."""


class ProblemScore(_Record):
    """Counts for one problem, enough to compute pass@k, pass^k and maj@k for any k later."""

    problem_id: str
    num_samples: int
    """Verified samples: the n of pass@k."""
    num_correct: int
    """The c of pass@k."""
    num_unverified: int
    num_truncated: int
    num_no_answer: int
    """Verified samples without an answer to vote with."""
    wrong_votes: tuple[int, ...] = ()
    """Samples of each different wrong answer, most frequent first."""


class SetScore(_Record):
    """Scores of one held-out set."""

    name: str
    num_problems: int
    num_samples: int
    """Samples asked for, for each problem."""
    pass_at_k: Mapping[int, Estimate]
    """Chance that one of k samples is right; pass@1 is also called avg@n."""
    pass_hat_k: Mapping[int, Estimate] = {}
    """pass^k: chance that all of k samples are right."""
    maj_at_k: Mapping[int, Estimate] = {}
    """Chance that the most frequent answer of k samples is right."""
    num_left_out: int
    """Problems with fewer verified samples than the largest k; they are in the bounds only."""
    unverified_fraction: float
    truncated_fraction: float
    no_answer_fraction: float
    mean_completion_length: float | None
    """In tokens; none where a server does not give them."""
    outcomes: Mapping[str, int] = {}
    """Samples by what became of them: each verdict's status and reason."""
    graders: tuple[str, ...] = ()
    """Name and version of every verifier that gave a verdict."""
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
    record: EvaluationRecord | None = None
    """Everything that is needed to repeat it; none beside training, where the run's files have
    it."""
    environment: Mapping[str, Any] = {}
    """Versions, commit and hardware."""

    @property
    def metrics(self) -> dict[str, float]:
        """Scores under the names of metrics, as `heldout/maths/pass@1`."""
        return {
            f"heldout/{score.name}/pass@{k}": estimate.value
            for score in self.sets
            for k, estimate in score.pass_at_k.items()
        }


Estimator = Callable[[ProblemScore, int], float]
ESTIMATORS: Mapping[str, Estimator] = {
    "pass@": lambda p, k: compute_pass_at_k(p.num_samples, p.num_correct, k),
    "pass^": lambda p, k: compute_pass_hat_k(p.num_samples, p.num_correct, k),
    "maj@": lambda p, k: compute_maj_at_k(p.num_correct, p.wrong_votes, _count_blanks(p), k),
}


def score_set(
    name: str, groups: Sequence[ScoredGroup], *, num_samples: int, ks: Sequence[int], seed: int
) -> SetScore:
    """Score one held-out set.

    Args:
        name: Of the set.
        groups: One for each problem.
        num_samples: Samples asked for, for each problem.
        ks: The k of pass@k, pass^k and maj@k.
        seed: Of the bootstrap.
    """
    problems = tuple(score_problem(group) for group in groups)
    members = [member for group in groups for member in group.members]
    statuses = Counter(member.verdict.status for member in members)
    total = len(members)
    return SetScore(
        name=name,
        num_problems=len(problems),
        num_samples=num_samples,
        pass_at_k=estimate_all("pass@", problems, ks, seed),
        pass_hat_k=estimate_all("pass^", problems, ks, seed),
        maj_at_k=estimate_all("maj@", problems, ks, seed),
        num_left_out=len(problems) - len(_usable(problems, max(ks))),
        unverified_fraction=sum(not member.verdict.verified for member in members) / total,
        truncated_fraction=sum(member.rollout.truncated for member in members) / total,
        no_answer_fraction=statuses[Status.NO_ANSWER] / total,
        mean_completion_length=_mean_length(members),
        outcomes=dict(
            Counter(f"{m.verdict.status} ({m.verdict.reason})" for m in members).most_common()
        ),
        graders=tuple(sorted({m.verdict.verifier for m in members if m.verdict.verified})),
        problems=problems,
    )


def _mean_length(members: Sequence[ScoredRollout]) -> float | None:
    lengths = [len(member.rollout.completion_ids) for member in members]
    return sum(lengths) / len(lengths) if any(lengths) else None


def score_problem(group: ScoredGroup) -> ProblemScore:
    """Count what became of a problem's samples."""
    members = [member for member in group.members if member.verdict.verified]
    statuses = Counter(member.verdict.status for member in members)
    votes = Counter(vote for member in members if (vote := _read_wrong_vote(member)) is not None)
    return ProblemScore(
        problem_id=group.problem.id,
        num_samples=len(members),
        num_correct=statuses[Status.CORRECT],
        num_unverified=len(group.members) - len(members),
        num_truncated=sum(member.rollout.truncated for member in group.members),
        num_no_answer=statuses[Status.NO_ANSWER],
        wrong_votes=tuple(count for _, count in votes.most_common()),
    )


def _read_wrong_vote(member: ScoredRollout) -> str | None:
    """A wrong answer in one spelling; None where there is no answer, or a right one.

    Right answers need no spelling: what equals the reference is one answer, however it is written.
    """
    verdict = member.verdict
    if verdict.status in (Status.CORRECT, Status.NO_ANSWER) or not verdict.extracted:
        return None
    text = verdict.extracted
    return write_canonical(text) if verdict.verifier.startswith("math@") else " ".join(text.split())


def _count_blanks(problem: ProblemScore) -> int:
    return problem.num_samples - problem.num_correct - sum(problem.wrong_votes)


def estimate_all(
    kind: str, problems: Sequence[ProblemScore], ks: Iterable[int], seed: int
) -> dict[int, Estimate]:
    """Estimate a score for several k, each with its interval and bounds.

    Problems with fewer verified samples than the largest k are in no estimate, so that all k are of
    the same problems.

    Args:
        kind: A key of `ESTIMATORS`.
        problems: Of one set.
        ks: Sizes of the drawn sets of samples.
        seed: Of the bootstrap.

    Returns:
        By k; empty where no problem has enough verified samples.
    """
    wanted = sorted(ks)
    usable = _usable(problems, wanted[-1])
    if not usable:
        return {}
    return {k: _estimate(ESTIMATORS[kind], problems, usable, k, seed) for k in wanted}


def _usable(problems: Sequence[ProblemScore], largest_k: int) -> list[ProblemScore]:
    return [problem for problem in problems if problem.num_samples >= largest_k]


def _estimate(
    estimator: Estimator,
    problems: Sequence[ProblemScore],
    usable: Sequence[ProblemScore],
    k: int,
    seed: int,
) -> Estimate:
    values = [estimator(problem, k) for problem in usable]
    single = all(problem.num_samples == 1 for problem in usable)
    low, high = find_score_interval(values, seed=seed, single=single)
    at_least, at_most = (
        [estimator(_settle(problem, all_right=right), k) for problem in problems]
        for right in (False, True)
    )
    return Estimate(
        value=_mean(values),
        low=low,
        high=high,
        stderr=compute_clustered_se(values) if len(values) > 1 else None,
        at_least=_mean(at_least),
        at_most=_mean(at_most),
    )


def _settle(problem: ProblemScore, *, all_right: bool) -> ProblemScore:
    """The counts if every sample that was not verified were right, or none.

    As wrong votes they would all say the same, which is the worst for a vote.
    """
    unknown = problem.num_unverified
    if not unknown:
        return problem
    changes = {
        "num_samples": problem.num_samples + unknown,
        "num_correct": problem.num_correct + unknown * all_right,
        "wrong_votes": problem.wrong_votes if all_right else _add_wrong(problem, unknown),
    }
    return problem.model_copy(update=changes)


def _add_wrong(problem: ProblemScore, unknown: int) -> tuple[int, ...]:
    most, *others = problem.wrong_votes or (0,)
    return (most + unknown, *others)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def compare_pass_at_1(before: SetScore, after: SetScore, *, seed: int) -> Estimate | None:
    """Paired difference of pass@1, after minus before, over the problems that both could score.

    None where they have no such problem in common.
    """
    old = {p.problem_id: p.num_correct / p.num_samples for p in before.problems if p.num_samples}
    differences = [
        p.num_correct / p.num_samples - old[p.problem_id]
        for p in after.problems
        if p.num_samples and p.problem_id in old
    ]
    if not differences:
        return None
    low, high = find_difference_interval(differences, seed=seed)
    return Estimate(value=_mean(differences), low=low, high=high)
