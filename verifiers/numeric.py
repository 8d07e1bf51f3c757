"""The verifier of measured or rounded numbers: right within a tolerance."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from fractions import Fraction

from verifiers.errors import BadReference, UserError
from verifiers.example import Example
from verifiers.extraction import Policy, check_policy
from verifiers.maths.answers import Quantity, Relation
from verifiers.maths.equality import float_value
from verifiers.maths.exact import TooCostly, evaluate
from verifiers.maths.expressions import Symbol, Unreadable
from verifiers.maths.reader import read_answer
from verifiers.maths.units import Unit, convert
from verifiers.problem import Problem, Submission
from verifiers.protocol import Verifier
from verifiers.replies import extract_reply, no_answer, write_reply
from verifiers.verdict import Reason, Status, Verdict

MAX_ANSWER_CHARS = 1000


class NumericVerifier(Verifier):
    """Judges a number, with or without a unit, by its distance to the reference.

    The answer is right within `abs_tol`, or within `rel_tol` times the reference. Units that both
    sides write must measure the same and are converted.

    Args:
        abs_tol: Absolute tolerance, in the reference's unit.
        rel_tol: Relative tolerance.
        require_unit: A reference with a unit wants an answer with one.
        extraction: Where the answer stands; see `verifiers.extraction.find_answer`.
        allow_truncated: Judge a completion that was cut off at the length limit.

    Raises:
        UserError: A tolerance is negative, or there is no such extraction policy.
    """

    name = "numeric"
    version = 1

    def __init__(
        self,
        *,
        abs_tol: float = 0.0,
        rel_tol: float = 1e-6,
        require_unit: bool = False,
        extraction: Policy = "boxed",
        allow_truncated: bool = False,
    ) -> None:
        if abs_tol < 0 or rel_tol < 0:
            raise UserError("tolerances of the verifier `numeric` must not be negative")
        self._abs_tol = abs_tol
        self._rel_tol = rel_tol
        self._require_unit = require_unit
        self._extraction: Policy = check_policy(extraction)
        self._allow_truncated = allow_truncated

    def prepare(self, problem: Problem) -> None:
        """Check that the reference is a number.

        Raises:
            BadReference: It is not.
        """
        try:
            _read_number(str(problem.reference))
        except Unreadable as error:
            raise BadReference(
                f"{problem.source}: the reference {problem.reference!r} is not a number "
                f"({error}), so the verifier "
                "`numeric` cannot judge the row"
            ) from error

    def verify(self, submission: Submission) -> Verdict:
        """Judge one completion."""
        started = time.perf_counter()
        label = f"{self.name}@{self.version}"
        found = extract_reply(submission, self._extraction, self._allow_truncated)
        if isinstance(found, Reason):
            return no_answer(found, label, started)
        status, reason = self._compare(str(submission.problem.reference), found.text)
        scores = {Status.CORRECT: 1.0, Status.BAD_GOLD: None}
        return Verdict(
            status=status,
            score=scores.get(status, 0.0),
            reason=reason,
            verifier=label,
            extracted=found.text[:MAX_ANSWER_CHARS],
            seconds=time.perf_counter() - started,
        )

    def examples(self) -> Sequence[Example]:
        """A right and a wrong answer."""
        return [
            Example.of(self.name, "12.5", write_reply("12.5", self._extraction), Status.CORRECT),
            Example.of(self.name, "12.5", write_reply("-12.5", self._extraction), Status.INCORRECT),
        ]

    def _compare(  # noqa: PLR0911 - from the cheapest test to the dearest
        self, reference: str, answer: str
    ) -> tuple[Status, Reason]:
        try:
            gold, gold_unit = _read_number(reference)
        except Unreadable:
            return Status.BAD_GOLD, Reason.UNREADABLE_REFERENCE
        if len(answer) > MAX_ANSWER_CHARS:
            return Status.LIMIT, Reason.TOO_LONG
        try:
            value, unit = _read_number(answer)
        except Unreadable:
            return Status.INCORRECT, Reason.UNPARSED
        conversion = convert(unit, gold_unit, missing_is_same=not self._require_unit)
        if conversion is None:
            return Status.INCORRECT, Reason.DIFFERENT
        distance = abs(value * conversion.scale + conversion.offset - gold)
        if not distance:
            return Status.CORRECT, Reason.EQUAL_EXACT
        limit = max(Fraction(self._abs_tol), Fraction(self._rel_tol) * abs(gold))
        if distance <= limit:
            return Status.CORRECT, Reason.EQUAL_TOLERANCE
        return Status.INCORRECT, Reason.DIFFERENT


def _read_number(text: str) -> tuple[Fraction, Unit | None]:
    answer = read_answer(text, letters_are_units=True)
    match answer:
        case Relation((Quantity(Symbol(), None), value), ("=",)):  # `v \approx 3.2 \text{ m/s}`
            answer = value
    if not isinstance(answer, Quantity):
        raise Unreadable("not a single number")
    try:
        value = evaluate(answer.expression)
    except TooCostly:
        raise Unreadable("too large a number") from None
    if value is None:
        number = float_value(answer.expression)
        if number is None or not math.isfinite(number):
            raise Unreadable("not a real number")
        value = Fraction(number)
    return value, answer.unit
