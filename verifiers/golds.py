"""References tried out before training: against themselves, and against answers that are wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from verifiers.errors import BadReference
from verifiers.judge import Judge
from verifiers.maths.expressions import Unreadable
from verifiers.maths.kinds import name_kind
from verifiers.maths.verifier import find_reference_text
from verifiers.problem import Problem, Submission
from verifiers.replies import write_reply
from verifiers.verdict import Status, Verdict

# Verifiers whose reference is an answer that a completion could state.
ANSWER_VERIFIERS = frozenset({"choice", "exact", "math", "numeric"})
_NUMBER = re.compile(r"\d{1,400}")  # longer ones are changed in a part
_ANOTHER_ANSWER = "7919"


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


def check_gold(problem: Problem, judge: Judge, options: Mapping[str, Any]) -> GoldCheck:
    """Read a reference, then judge the reference itself and a twin that differs in a number.

    Only a verifier whose reference is an answer can be tried out like that; of any other the
    reference is read.

    Args:
        problem: The row.
        judge: Holds the row's verifier.
        options: Of that verifier; its `extraction` says how a completion states an answer.
    """
    kind = _name_kind(problem)
    try:
        judge.prepare(problem)
    except BadReference as error:
        return GoldCheck(problem=problem, kind=kind, fault=Fault.UNREADABLE, detail=str(error))
    if problem.verifier not in ANSWER_VERIFIERS:
        return GoldCheck(problem=problem, kind=kind)
    fault, detail = _try_out(problem, judge, options.get("extraction", "boxed"))
    return GoldCheck(problem=problem, kind=kind, tried=True, fault=fault, detail=detail)


def _try_out(problem: Problem, judge: Judge, extraction: Any) -> tuple[Fault | None, str]:
    def verdict_on(answer: str) -> Verdict:
        completion = write_reply(answer, extraction)
        return judge.verify(Submission(problem=problem, completion=completion))

    answers = read_answers(problem)
    for answer in answers:
        verdict = verdict_on(answer)
        if not verdict.verified:
            return Fault.NOT_JUDGED, f"{answer}: {verdict.reason} {verdict.detail or ''}".strip()
        if verdict.status is not Status.CORRECT:
            return Fault.FAILS_ITSELF, f"{answer}: {verdict.reason} {verdict.detail or ''}".strip()
    twins = make_twins(answers)
    # One twin may be right by chance (5^0 and 11^0), or within a tolerance.
    if all(verdict_on(twin).status is Status.CORRECT for twin in twins):
        return Fault.ACCEPTS_ANOTHER, f"accepts {' and '.join(twins)}"
    return None, ""


def read_answers(problem: Problem) -> list[str]:
    """The answers that a row's reference stands for."""
    if problem.verifier == "math":
        return [find_reference_text(problem)]
    reference = problem.reference
    return [str(item) for item in (reference if isinstance(reference, list) else [reference])]


def make_twins(answers: Sequence[str]) -> list[str]:
    r"""Answers that look like the first one and are wrong.

    A number n becomes 2n + 1, far outside any tolerance.

    Example:
        >>> make_twins([r"\frac{3}{4}"])
        ['\\frac{7}{4}', '\\frac{3}{9}']
    """
    gold = answers[0]
    if re.fullmatch(r"\(?[A-Z]\)?", gold):
        twins = [gold.replace("A", "B") if "A" in gold else re.sub("[A-Z]", "A", gold)]
    else:
        numbers = list(_NUMBER.finditer(gold))
        ends = [numbers[0], numbers[-1]] if numbers else []
        twins = [f"{gold[: n.start()]}{2 * int(n.group()) + 1}{gold[n.end() :]}" for n in ends]
    twins = [twin for twin in dict.fromkeys(twins) if twin not in answers]
    return twins or [_ANOTHER_ANSWER]


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
