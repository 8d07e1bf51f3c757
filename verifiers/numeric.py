"""The verifier of measured or rounded numbers: right within a tolerance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from verifiers.errors import BadReference, UserError
from verifiers.example import Example
from verifiers.extraction import Policy
from verifiers.maths.answers import Quantity, Relation
from verifiers.maths.equality import float_value
from verifiers.maths.exact import TooCostly, evaluate
from verifiers.maths.expressions import Symbol, Unreadable
from verifiers.maths.reader import read_answer
from verifiers.maths.units import Unit, convert
from verifiers.problem import Problem, Submission
from verifiers.protocol import Verifier
from verifiers.replies import ReplyReader, Ruling
from verifiers.verdict import Reason, Verdict

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
        self._reader = ReplyReader(extraction, allow_truncated=allow_truncated)

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
        return self._reader.judge(submission, self.label, self._rule)

    def examples(self) -> Sequence[Example]:
        """A right and a wrong answer."""
        return self._reader.make_examples(self.name, "12.5", right="12.5", wrong="-12.5")

    def _rule(self, problem: Problem, answer: str) -> Ruling:
        try:
            gold, gold_unit = _read_number(str(problem.reference))
        except Unreadable as error:
            return Ruling.bad_gold(str(error))
        if len(answer) > MAX_ANSWER_CHARS:
            return Ruling.too_long()
        try:
            value, unit = _read_number(answer)
        except Unreadable as error:
            return Ruling.wrong(Reason.UNPARSED, str(error))
        conversion = convert(unit, gold_unit, missing_is_same=not self._require_unit)
        if conversion is None:
            return Ruling.wrong(Reason.DIFFERENT, "the units do not measure the same")
        return self._compare(gold, value * conversion.scale + conversion.offset)

    def _compare(self, gold: Fraction, value: Fraction) -> Ruling:
        distance = abs(value - gold)
        if not distance:
            return Ruling.right(Reason.EQUAL_EXACT)
        limit = max(Fraction(self._abs_tol), Fraction(self._rel_tol) * abs(gold))
        within = distance <= limit
        return Ruling.right(Reason.EQUAL_TOLERANCE) if within else Ruling.wrong(Reason.DIFFERENT)


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
