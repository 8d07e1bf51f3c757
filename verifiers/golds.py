"""References tried out before training: against themselves, and against answers that are wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from verifiers.errors import BadReference
from verifiers.gold_trials import Trial, make_trial
from verifiers.judge import Judge
from verifiers.maths.expressions import Unreadable
from verifiers.maths.kinds import name_kind
from verifiers.maths.verifier import find_reference_text
from verifiers.problem import Problem, Submission
from verifiers.verdict import Status, Verdict

SOLUTION_COLUMN = "solution"
_SHOWN_CHARS = 100


class Fault(StrEnum):
    """What is wrong with a reference."""

    UNREADABLE = "unreadable"
    FAILS_ITSELF = "fails itself"
    ACCEPTS_ANOTHER = "accepts a wrong answer"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldCheck:
    """What trying out one reference has shown.

    Attributes:
        kind: Of the answer, such as `integer`; the verifier's name where it is no answer.
        tried: Whether completions were judged, not only the reference read.
        fault: None for a good reference.
        detail: The answer that was judged wrongly and why, or what cannot be read.
    """

    problem: Problem
    kind: str
    tried: bool = False
    fault: Fault | None = None
    detail: str = ""


def check_gold(
    problem: Problem,
    judge: Judge,
    options: Mapping[str, Any],
    *,
    solution_column: str = SOLUTION_COLUMN,
) -> GoldCheck:
    """Read a reference, then judge completions that state it and others that must be wrong.

    References of some verifiers are answers; one of `countdown` is solved; with others the row may
    have a right answer in a column. Where none is known the reference is only read.

    Args:
        problem: The row.
        judge: Holds the row's verifier.
        options: Of that verifier; its `extraction` says how a completion states an answer.
        solution_column: Column with an answer, or a program, known to be right.
    """
    kind = _name_kind(problem)
    try:
        judge.prepare(problem)
    except BadReference as error:
        return GoldCheck(problem=problem, kind=kind, fault=Fault.UNREADABLE, detail=str(error))
    trial = make_trial(problem, options, problem.columns.get(solution_column))
    if trial is None:
        return GoldCheck(problem=problem, kind=kind)
    fault, detail = _try_out(problem, judge, trial)
    return GoldCheck(problem=problem, kind=kind, tried=True, fault=fault, detail=detail)


def _try_out(problem: Problem, judge: Judge, trial: Trial) -> tuple[Fault | None, str]:
    def verdict_on(completion: str) -> Verdict:
        return judge.verify(Submission(problem=problem, completion=completion))

    if trial.unsolvable is not None:
        return Fault.FAILS_ITSELF, trial.unsolvable
    for completion in trial.right:
        verdict = verdict_on(completion)
        detail = f"{_shorten(completion)}: {verdict.reason} {verdict.detail or ''}".strip()
        if not verdict.verified:
            return Fault.NOT_JUDGED, detail
        if verdict.status is not Status.CORRECT:
            return Fault.FAILS_ITSELF, detail
    if trial.wrong and all(verdict_on(text).status is Status.CORRECT for text in trial.wrong):
        return Fault.ACCEPTS_ANOTHER, f"accepts {' and '.join(map(_shorten, trial.wrong))}"
    return None, ""


def _shorten(completion: str) -> str:
    text = " ".join(completion.split())
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."


def _name_kind(problem: Problem) -> str:
    match problem.verifier:
        case "math":
            try:
                return name_kind(find_reference_text(problem))
            except Unreadable:
                return "unreadable"
        case "numeric":
            return "number"
        case "choice":
            return "choice"
        case "exact":
            return "text"
    return problem.verifier
