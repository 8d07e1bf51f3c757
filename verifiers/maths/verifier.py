"""The verifier of mathematical answers: extract, read, compare, and say why."""

from __future__ import annotations

import functools
import re
import string
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from verifiers.choice import choose
from verifiers.errors import BadReference
from verifiers.example import Example
from verifiers.extraction import Found, find_answer
from verifiers.maths.answers import Answer, Choice, Collection, Quantity, Words
from verifiers.maths.cleanup import clean
from verifiers.maths.compare import compare
from verifiers.maths.equality import QuickEquality
from verifiers.maths.exact import TooCostly
from verifiers.maths.expressions import Unreadable, find_symbols
from verifiers.maths.finding import Finding
from verifiers.maths.formulas import needs_sympy
from verifiers.maths.options import MathOptions
from verifiers.maths.reader import read_answer
from verifiers.maths.words import normalize_words
from verifiers.problem import Problem, Submission
from verifiers.protocol import Verifier
from verifiers.replies import ReplyReader, Ruling, write_reply
from verifiers.verdict import Reason, Status, Verdict
from verifiers.workers import (
    MACHINE_FAILURES,
    Outcome,
    WorkerPool,
    WorkerPoolError,
    WorkerSettings,
)

MAX_ANSWER_CHARS = 5000
MEMO_SIZE = 8192
_TOO_LARGE = Ruling(
    status=Status.LIMIT,
    reason=Reason.DEADLINE,
    detail="exact arithmetic would need numbers beyond the limits",
)

_LETTERS_AS_TEXT = re.compile(r"\\(?:text|textbf|textit|mathrm)\s*\{\s*([A-Za-z]{2,})\s*\}")
_TRAILING_TEXT = re.compile(r"\s*\\text\s*\{[^{}]*\}\s*$")


@dataclass(frozen=True, slots=True)
class _Formula:
    """A reference that is left to sympy."""

    text: str


@dataclass(frozen=True, slots=True)
class _BadGold:
    """A reference that cannot be read, and why."""

    why: str


class MathVerifier(Verifier):
    r"""Judges the answer in a completion against a reference such as `\frac{3}{4}`, `(1.

    2]` or `\text{Monday}`.

    The reference's kind (number, interval, set, equation, ...) chooses the comparison, and an
    answer of another kind is wrong unless an option bridges the two. Every character of the answer
    must be understood. Numbers compare exactly and in this process; what needs more goes to a
    worker process that is killed at its limit.

    Args:
        options: See `MathOptions`.

    Raises:
        UserError: An option has the wrong type or value.
    """

    OPTIONS = MathOptions
    name = "math"
    version = 1

    def __init__(self, **options: Any) -> None:
        self._options = MathOptions(**options)
        self.concurrency = self._options.concurrency
        self._reader = ReplyReader(
            self._options.extraction, allow_truncated=self._options.allow_truncated
        )
        self._quick = QuickEquality(assume_positive=self._options.assume_positive)
        self._gold = functools.lru_cache(maxsize=MEMO_SIZE)(self._read_gold)
        self._memo: OrderedDict[tuple[str, str], Ruling] = OrderedDict()
        self._memo_lock = threading.Lock()
        # Each starts with its first job: few data sets have references that need sympy.
        numbers = ("mpmath", "verifiers.maths.measures:load_registry")
        self._numbers = self._make_pool("verifiers.maths.symbolic:compare_fully", numbers)
        formulas = ("sympy", "latex2sympy2_extended")
        self._formulas = self._make_pool("verifiers.maths.formulas:compare_formulas", formulas)
        self._checks = self._make_pool("verifiers.maths.formulas:check_formula", formulas)

    def prepare(self, problem: Problem) -> None:
        """Check that the reference can be read.

        Raises:
            BadReference: It cannot.
        """
        try:
            gold = self._gold(find_reference_text(problem))
        except Unreadable as error:
            gold = _BadGold(str(error))
        if isinstance(gold, _BadGold):
            raise BadReference(
                f"{problem.source}: the reference {problem.reference!r} cannot be read as a "
                f"mathematical answer ({gold.why}); correct the row, or judge it with the "
                "verifier `exact`"
            )

    def verify(self, submission: Submission) -> Verdict:
        """Judge one completion."""
        started = time.perf_counter()
        found = self._extract(submission)
        if isinstance(found, Reason):
            return Ruling.no_answer(found).sign(self.label, started)
        return self._rule(submission.problem, found).sign(self.label, started, found.text)

    def close(self) -> None:
        """End the worker processes."""
        for pool in (self._numbers, self._formulas, self._checks):
            pool.close()

    def examples(self) -> Sequence[Example]:
        """Answers known to be right and wrong; one of them needs a worker process."""
        cases = [
            ("42", "42", Status.CORRECT),
            ("42", "43", Status.INCORRECT),
            ("0.75", "3/4", Status.CORRECT),
        ]
        if self._options.extraction != "last_number":
            cases.append((r"\frac{1}{\sqrt2}", r"\frac{\sqrt2}{2}", Status.CORRECT))
        else:
            cases.pop()
        return [
            Example.of(self.name, gold, write_reply(answer, self._options.extraction), status)
            for gold, answer, status in cases
        ]

    def _extract(self, submission: Submission) -> Found | Reason:
        options = self._options
        found = self._reader.find(submission)
        if isinstance(found, Found) and options.unique_box and found.distinct > 1:
            return Reason.MULTIPLE_ANSWERS
        if isinstance(found, Found) and options.box_at_end and not found.at_end:
            return Reason.NOT_AT_END
        return found

    def _rule(self, problem: Problem, found: Found) -> Ruling:
        try:
            reference = find_reference_text(problem)
        except Unreadable as error:
            return Ruling.bad_gold(str(error))
        key = (reference, "\0".join(found.parts))
        with self._memo_lock:
            if key in self._memo:
                self._memo.move_to_end(key)
                return self._memo[key]
        ruling = self._compare(reference, found)
        if ruling.status not in (Status.ERROR, Status.BAD_GOLD):
            with self._memo_lock:
                self._memo[key] = ruling
                if len(self._memo) > MEMO_SIZE:
                    self._memo.popitem(last=False)
        return ruling

    def _compare(  # noqa: PLR0911 - from the cheapest test to the dearest
        self, reference: str, found: Found
    ) -> Ruling:
        if len(found.text) > max(MAX_ANSWER_CHARS, 4 * len(reference)):
            return Ruling.too_long()
        if _spell(found.text) == _spell(reference):
            return Ruling.right(Reason.EQUAL_TEXT)
        gold = self._gold(reference)
        if isinstance(gold, _BadGold):
            return Ruling.bad_gold(gold.why)
        if isinstance(gold, _Formula):
            return _rule_outcome(self._formulas.run(gold.text, found.text))
        if len(found.parts) > 1 and not isinstance(gold, Collection):
            return Ruling.no_answer(Reason.MULTIPLE_ANSWERS)
        if isinstance(gold, Words):
            same = normalize_words(found.text) == gold.text
            return _ruling(Finding.of(same, Reason.EQUAL_TEXT))
        if isinstance(gold, Choice):
            return _ruling(_compare_choice(gold, found.text))
        try:
            prediction = self._read_prediction(found.text, gold)
        except Unreadable as error:
            return Ruling.wrong(Reason.UNPARSED, str(error))
        return self._compare_answers(gold, prediction)

    def _read_prediction(self, text: str, gold: Answer) -> Answer:
        letters_are_units = isinstance(gold, Quantity) and not find_symbols(gold.expression)
        try:
            return read_answer(text, letters_are_units=letters_are_units)
        except Unreadable:
            shorter = _TRAILING_TEXT.sub("", text)
            if not self._options.ignore_trailing_text or shorter == text:
                raise
            return read_answer(shorter, letters_are_units=letters_are_units)

    def _compare_answers(self, gold: Answer, prediction: Answer) -> Ruling:
        if gold == prediction:
            return Ruling.right(Reason.EQUAL_EXACT)
        try:
            finding = compare(gold, prediction, self._options, self._quick)
        except TooCostly:
            return _TOO_LARGE
        except RecursionError:
            return Ruling.wrong(Reason.UNPARSED, "nested too deeply")
        if finding.same is not None:
            return _ruling(finding)
        return _rule_outcome(self._numbers.run(gold, prediction, self._options))

    def _make_pool(self, target: str, preload: tuple[str, ...]) -> WorkerPool:
        settings = WorkerSettings(
            target=target,
            preload=(target.partition(":")[0], *preload),
            cpu_limit_s=self._options.cpu_limit_s,
            wall_limit_s=self._options.wall_limit_s,
            memory_mb=self._options.memory_mb,
        )
        options = self._options
        return WorkerPool(settings, size=options.concurrency, poison_file=options.poison_file)

    def _read_gold(self, reference: str) -> Answer | _Formula | _BadGold:
        try:
            return read_answer(reference)
        except Unreadable as error:
            if not needs_sympy(reference):
                return _BadGold(str(error))
        outcome = self._checks.run(reference)
        if outcome.failure is None:
            return _Formula(reference)
        if outcome.failure in MACHINE_FAILURES:
            raise WorkerPoolError(f"the reference {reference!r} was not read: {outcome.detail}")
        last_line = (outcome.detail or "").strip().rpartition("\n")[2]
        return _BadGold(f"sympy: {last_line}")


def _spell(text: str) -> str:
    r"""The cleaned text; letters in a text command as plain ones, `\text{AC}` as `AC`."""
    cleaned = clean(text)
    match = _LETTERS_AS_TEXT.fullmatch(cleaned)
    return match[1] if match else cleaned


def _ruling(finding: Finding) -> Ruling:
    return Ruling.right(finding.reason) if finding.same else Ruling.wrong(finding.reason)


def _rule_outcome(outcome: Outcome) -> Ruling:
    if outcome.failure is not None:
        return Ruling.failed(outcome)
    return _TOO_LARGE if outcome.value is None else _ruling(outcome.value)


def _compare_choice(gold: Choice, text: str) -> Finding:
    letter = choose(text, dict.fromkeys(string.ascii_uppercase, ""))
    if letter is None:
        return Finding(False, Reason.TYPE_MISMATCH)
    return Finding.of(letter == gold.letter)


def find_reference_text(problem: Problem) -> str:
    """The reference as text; of a worked solution, its last box or what follows `####`.

    Raises:
        Unreadable: It is neither text nor a number.
    """
    reference = problem.reference
    if reference is None:
        others = ", ".join(sorted(problem.columns)) or "no others"
        raise Unreadable(f"the row has none; its columns are: {others}")
    if isinstance(reference, bool) or not isinstance(reference, str | int | float | Fraction):
        raise Unreadable(f"a {type(reference).__name__} is no mathematical answer")
    text = str(reference)
    for policy in ("boxed", "hash"):
        found = find_answer(text, policy)
        if isinstance(found, Found):
            return found.text
    return text
