"""The verifier of number puzzles: reach a target with given numbers and four operators."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verifiers.arithmetic import MAX_NUMBERS, Unreadable, evaluate, find_numbers, read_expression
from verifiers.errors import BadReference
from verifiers.example import Example
from verifiers.extraction import Policy
from verifiers.json_text import NotJson, read_json
from verifiers.problem import Problem, Submission
from verifiers.protocol import Verifier
from verifiers.replies import ReplyReader, Ruling
from verifiers.verdict import Reason, Verdict

MAX_ANSWER_CHARS = 1000
_EQUATION = re.compile(r"([^=]*)=\s*(-?[0-9]+)[\s$.]*")


@dataclass(frozen=True, slots=True)
class Puzzle:
    """What a row asks for."""

    numbers: tuple[int, ...]
    target: int


class CountdownVerifier(Verifier):
    """Judges an expression that makes a target from given numbers, as in Countdown or 24.

    The value is exact, and every given number is used at most once. `(1 + 2) * 3 = 9` is read as
    its left side, and is wrong when it is not true.

    Args:
        target: The target of every row (24, for that game); rows may then give numbers alone.
        use_all: Every given number must be used.
        numbers_column: Column with the numbers, for rows whose reference is the target alone.
        extraction: Where the answer stands; see `verifiers.extraction.find_answer`.
        allow_truncated: Judge a completion that was cut off at the length limit.

    Raises:
        UserError: There is no such extraction policy.
    """

    name = "countdown"
    version = 1

    def __init__(
        self,
        *,
        target: int | None = None,
        use_all: bool = False,
        numbers_column: str = "nums",
        extraction: Policy = "boxed",
        allow_truncated: bool = False,
    ) -> None:
        self._target = target
        self._use_all = use_all
        self._numbers_column = numbers_column
        self._reader = ReplyReader(extraction, allow_truncated=allow_truncated)

    def prepare(self, problem: Problem) -> None:
        """Check that the row has numbers and a target.

        Raises:
            BadReference: It has not.
        """
        try:
            self.read_puzzle(problem)
        except ValueError as error:
            raise BadReference(
                f"{problem.source}: the reference {problem.reference!r} is no puzzle ({error}); "
                'the verifier `countdown` reads {"numbers": [3, 7, 8], "target": 24}'
            ) from error

    def verify(self, submission: Submission) -> Verdict:
        """Judge one completion."""
        return self._reader.judge(submission, self.label, self._rule)

    def examples(self) -> Sequence[Example]:
        """A right and a wrong answer."""
        target = 24 if self._target is None else self._target
        puzzle = {"numbers": [target + 2, 2], "target": target}
        right, wrong = f"{target + 2} - 2", f"{target + 2} + 2"
        return self._reader.make_examples(self.name, puzzle, right=right, wrong=wrong)

    def _rule(self, problem: Problem, answer: str) -> Ruling:
        try:
            puzzle = self.read_puzzle(problem)
        except ValueError as error:
            return Ruling.bad_gold(str(error))
        return self._judge(puzzle, answer)

    def _judge(  # noqa: PLR0911 - from the cheapest test to the dearest
        self, puzzle: Puzzle, answer: str
    ) -> Ruling:
        if len(answer) > MAX_ANSWER_CHARS:
            return Ruling.too_long()
        equation = _EQUATION.fullmatch(answer)
        try:
            tree = read_expression(equation[1] if equation else answer)
        except Unreadable as error:
            return Ruling.wrong(Reason.UNPARSED, str(error))
        used, given = Counter(find_numbers(tree)), Counter(puzzle.numbers)
        if surplus := used - given:
            return Ruling.wrong(Reason.REJECTED, f"used more often than given: {_list(surplus)}")
        if self._use_all and (unused := given - used):
            return Ruling.wrong(Reason.REJECTED, f"not used: {_list(unused)}")
        try:
            value = evaluate(tree)
        except ZeroDivisionError:
            return Ruling.wrong(Reason.REJECTED, "division by zero")
        if equation and value != int(equation[2]):
            return Ruling.wrong(Reason.DIFFERENT, f"the equation is false: its left is {value}")
        if value != puzzle.target:
            return Ruling.wrong(Reason.DIFFERENT, f"the value is {value}")
        return Ruling.right(Reason.EQUAL_EXACT)

    def read_puzzle(self, problem: Problem) -> Puzzle:
        """The row's numbers and target.

        Raises:
            ValueError: It does not give them.
        """
        reference: Any = problem.reference
        if isinstance(reference, str):
            try:
                reference = read_json(reference)
            except NotJson as error:
                raise ValueError(f"the text is no JSON: {error}") from error
        numbers, target = self._find_parts(reference, problem.columns)
        target: Any = self._target if target is None else target
        is_list = isinstance(numbers, list | tuple) and 1 <= len(numbers) <= MAX_NUMBERS
        if not is_list or not all(_is_whole(number) and number >= 0 for number in numbers):
            raise ValueError(f"it gives no list of 1 to {MAX_NUMBERS} natural numbers")
        if not _is_whole(target):
            raise ValueError(f"the target {target!r} is no whole number")
        return Puzzle(tuple(numbers), target)

    def _find_parts(self, reference: Any, columns: Mapping[str, Any]) -> tuple[Any, Any]:
        """Numbers and target, each None where the row does not say."""
        match reference:
            case {"numbers": numbers}:
                return numbers, reference.get("target")
            case list() | tuple():
                return reference, None
            case _:
                return columns.get(self._numbers_column), reference


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _list(numbers: Counter[int]) -> str:
    return ", ".join(map(str, sorted(numbers.elements())))
