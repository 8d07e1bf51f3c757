"""Two evaluations of the same problems, set against each other problem by problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from grpo.evaluation.intervals import (
    bootstrap_p_value,
    compute_sign_test,
    find_difference_interval,
)
from grpo.evaluation.record import describe_difference
from grpo.evaluation.scores import ESTIMATORS, EvaluationResult, ProblemScore, SetScore
from verifiers.errors import UserError

# With fewer, a model that only got surer of what it could do looks as if it could do more.
_MANY_SAMPLES = 16


class Difference(BaseModel):
    """The mean over problems of the second score less the first."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    first: float
    second: float
    value: float
    low: float
    high: float
    """Ends of the 95 % interval, from resampled problems."""
    p_value: float
    """Two-sided, from the same resampling."""


class SetComparison(BaseModel):
    """One set in two evaluations."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    num_problems: int
    """Problems that both could score."""
    num_left_out: int
    """Problems that only one has, or that have too few verified samples in one."""
    pass_at_k: Mapping[int, Difference]
    """For 1, 2, 4, ... and the largest k that both have samples for."""
    pass_hat_k: Mapping[int, Difference]
    maj_at_k: Mapping[int, Difference]
    gained: tuple[str, ...]
    """Problems solved by the second alone: at least half of its verified samples are right."""
    lost: tuple[str, ...]
    """Problems solved by the first alone."""
    flips_p_value: float
    """Whether as many were gained as lost, by the exact sign test."""

    @property
    def reading(self) -> str:
        """What the pass@k curves say, in a sentence."""
        first, last = self.pass_at_k[1], self.pass_at_k[max(self.pass_at_k)]
        if len(self.pass_at_k) == 1:
            return "one sample a problem says nothing of what more samples would find"
        k = max(self.pass_at_k)
        if first.low > 0 and last.low > 0 and k < _MANY_SAMPLES:
            return f"better with one sample and with {k}; more would tell sharpened from widened"
        if first.low > 0 and last.low > 0:
            return f"widened: also with {k} samples more problems are solved than before"
        if first.low > 0:
            return (
                f"sharpened: one sample is right more often, with {k} no more is solved than before"
            )
        if first.high < 0:
            return "worse with one sample"
        return "no difference that these problems could show"


def compare_results(
    first: EvaluationResult, second: EvaluationResult, *, seed: int
) -> tuple[list[SetComparison], list[str]]:
    """Compare every set that both have.

    Args:
        first: The one to start from.
        second: The other.
        seed: Of the resampling.

    Returns:
        A comparison for each set, and sentences on what keeps the two from being comparable.

    Raises:
        UserError: They have no problem in common.
    """
    pairs = zip_sets(first, second)
    comparisons = [
        comparison for pair in pairs if (comparison := compare_sets(*pair, seed=seed)) is not None
    ]
    if not comparisons:
        ours, theirs = (", ".join(s.name for s in result.sets) for result in (first, second))
        raise UserError(
            "The two evaluations have no scored problem in common: the sets are "
            f"{ours} and {theirs}."
        )
    notes = []
    if first.record is not None and second.record is not None:
        notes = list(describe_difference(first.record, second.record))
    notes += [
        f"set {ours.name!r}: {ours.num_problems} and {theirs.num_problems} problems"
        for ours, theirs in pairs
        if ours.num_problems != theirs.num_problems
    ]
    return comparisons, notes


def zip_sets(first: EvaluationResult, second: EvaluationResult) -> list[tuple[SetScore, SetScore]]:
    """The sets that both have."""
    theirs = {score.name: score for score in second.sets}
    return [(score, theirs[score.name]) for score in first.sets if score.name in theirs]


def compare_sets(first: SetScore, second: SetScore, *, seed: int) -> SetComparison | None:
    """Compare one set; None where no problem was scored in both."""
    pairs = pair_problems(first, second)
    if not pairs:
        return None
    # The largest k is what nearly all problems have samples for; the few others are left out.
    largest = min(first.num_samples, second.num_samples)
    usable = [pair for pair in pairs if min(p.num_samples for p in pair) >= largest]
    if len(usable) < len(pairs) / 2:
        usable, largest = pairs, min(p.num_samples for pair in pairs for p in pair)
    ks = choose_ks(largest)
    gained = tuple(a.problem_id for a, b in usable if not _solved(a) and _solved(b))
    lost = tuple(a.problem_id for a, b in usable if _solved(a) and not _solved(b))
    everything = {p.problem_id for score in (first, second) for p in score.problems}
    return SetComparison(
        name=first.name,
        num_problems=len(usable),
        num_left_out=len(everything) - len(usable),
        pass_at_k=_differences("pass@", usable, ks, seed),
        pass_hat_k=_differences("pass^", usable, ks, seed),
        maj_at_k=_differences("maj@", usable, ks, seed),
        gained=gained,
        lost=lost,
        flips_p_value=compute_sign_test(len(gained), len(lost)),
    )


def describe_flips(comparison: SetComparison) -> list[str]:
    """Problems gained and lost, and what the curves say."""
    gained, lost = len(comparison.gained), len(comparison.lost)
    p_value = comparison.flips_p_value
    shown = "p < 0.0001" if p_value < 0.0001 else f"p = {p_value:.4f}"
    flips = f"{gained} problems gained, {lost} lost (sign test, {shown})"
    lines = [f"{comparison.name}: {flips}; {comparison.reading}"]
    if comparison.num_left_out:
        lines.append(f"{comparison.name}: {comparison.num_left_out} problems are in no difference")
    return lines


def pair_problems(first: SetScore, second: SetScore) -> list[tuple[ProblemScore, ProblemScore]]:
    """Problems that both have verified samples of."""
    theirs = {p.problem_id: p for p in second.problems if p.num_samples}
    return [
        (p, theirs[p.problem_id])
        for p in first.problems
        if p.num_samples and p.problem_id in theirs
    ]


def choose_ks(largest: int) -> list[int]:
    """1, 2, 4, ... up to the largest, which is always there.

    Example:
        >>> choose_ks(12)
        [1, 2, 4, 8, 12]
    """
    return sorted({*(2**i for i in range(largest.bit_length())), largest})


def _solved(problem: ProblemScore) -> bool:
    return 2 * problem.num_correct >= problem.num_samples


def _differences(
    kind: str, pairs: Sequence[tuple[ProblemScore, ProblemScore]], ks: Sequence[int], seed: int
) -> dict[int, Difference]:
    estimator = ESTIMATORS[kind]
    found = {}
    for k in ks:
        before = [estimator(a, k) for a, _ in pairs]
        after = [estimator(b, k) for _, b in pairs]
        changes = [b - a for a, b in zip(before, after, strict=True)]
        low, high = find_difference_interval(changes, seed=seed)
        found[k] = Difference(
            first=sum(before) / len(pairs),
            second=sum(after) / len(pairs),
            value=sum(changes) / len(pairs),
            low=low,
            high=high,
            p_value=bootstrap_p_value(changes, seed=seed),
        )
    return found
