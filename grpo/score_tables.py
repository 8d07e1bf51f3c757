"""Tables of one evaluation's scores, with what keeps them from being exact beside every one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.table import Table

from grpo.evaluation.scores import Estimate, EvaluationResult, SetScore
from grpo.values import ScoredGroup

_MAX_DETAIL_CHARS = 300
_NAMES = {"pass_at_k": "pass@", "pass_hat_k": "pass^", "maj_at_k": "maj@"}


def make_evaluation_table(result: EvaluationResult) -> Table:
    """Every score with its interval, its standard error and its bounds."""
    table = Table(title=f"{result.model} (95 % intervals)", title_justify="left")
    for column in ("set", "score", "value", "std. error", "bounds"):
        table.add_column(column, justify="left" if column in ("set", "score") else "right")
    for score in result.sets:
        for name, k, estimate in _rows(score):
            table.add_row(
                score.name,
                f"{name}{k} (n={score.num_samples})",
                f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]",
                "-" if estimate.stderr is None else f"{estimate.stderr:.3f}",
                _show_bounds(estimate),
            )
        if not score.pass_at_k:
            table.add_row(score.name, "none", "nothing was verified", "-", "[0.000, 1.000]")
    return table


def describe_samples(score: SetScore) -> list[str]:
    """What became of a set's samples: the shares that every score has to be read with."""
    length = score.mean_completion_length
    lines = [
        f"{score.name}: {score.num_problems} problems x {score.num_samples} samples; cut off "
        f"{score.truncated_fraction:.1%}, no answer {score.no_answer_fraction:.1%}, not verified "
        f"{score.unverified_fraction:.1%}"
        + ("" if length is None else f"; mean length {length:.1f} tokens")
    ]
    if score.num_left_out:
        lines.append(
            f"{score.name}: {score.num_left_out} problems have too few verified samples; they are "
            "in the bounds alone"
        )
    lines += [f"    {count:7d}  {outcome}" for outcome, count in score.outcomes.items()]
    return lines


def describe_unverified(groups: Iterable[ScoredGroup]) -> list[str]:
    """Why samples were not verified: for each reason the first that it happened to."""
    first: dict[str, str] = {}
    for group in groups:
        for member in group.members:
            verdict = member.verdict
            if not verdict.verified:
                detail = " ".join((verdict.detail or "").split())
                text = f"not verified, {verdict.reason}: {group.problem.id}: {detail}"
                first.setdefault(verdict.reason, text[:_MAX_DETAIL_CHARS])
    return list(first.values())


def _rows(score: SetScore) -> Iterator[tuple[str, int, Estimate]]:
    for field, name in _NAMES.items():
        for k, estimate in getattr(score, field).items():
            # With one sample all three are the same, and with two a majority is a draw.
            if k > {"pass@": 0, "pass^": 1, "maj@": 2}[name]:
                yield name, k, estimate


def _show_bounds(estimate: Estimate) -> str:
    if estimate.at_least is None or estimate.at_least == estimate.at_most:
        return "exact"
    return f"[{estimate.at_least:.3f}, {estimate.at_most:.3f}]"
