"""Expressions of whole numbers and the four operators: their own syntax tree, never `eval`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

MAX_DEPTH = 32
MAX_NUMBERS = 64

_SPELLINGS = (
    (re.compile(r"\\(?:left|right)(?![a-zA-Z])|\\[,;:! ]|[$~]"), " "),
    (re.compile(r"\\(?:times|cdot|ast)(?![a-zA-Z])|[×·⋅∗]"), "*"),  # noqa: RUF001 - their signs
    (re.compile(r"\\div(?![a-zA-Z])|[÷∕]"), "/"),  # noqa: RUF001
    (re.compile(r"[−–]"), "-"),  # noqa: RUF001
    (re.compile(r"\\[dt]?frac(?![a-zA-Z])"), "\\\\frac"),
)
_TOKEN = re.compile(r"\s*(?:(?P<number>[0-9]+)|(?P<mark>\\frac|[-+*/(){}]))")


class Unreadable(ValueError):
    """The text is no expression of this kind; the message says why."""


@dataclass(frozen=True, slots=True)
class Operation:
    """Two expressions joined by `+`, `-`, `*` or `/`."""

    operator: str
    left: Expression
    right: Expression


Expression = int | Operation


def read_expression(text: str) -> Expression:
    r"""The tree of an expression such as `(7 - 8 / 8) * 4`, in plain text or LaTeX.

    There is no sign, no power, and no product without its operator.

    Raises:
        Unreadable: Something else stands there, or too much of it.

    Example:
        >>> read_expression("7 - 2 * 3")
        Operation(operator='-', left=7, right=Operation(operator='*', left=2, right=3))
    """
    reader = _Reader(_tokenize(text))
    tree = reader.read_sum(0)
    if reader.token:
        raise Unreadable(f"{reader.token!r} is left over")
    return tree


def find_numbers(tree: Expression) -> list[int]:
    """The numbers in an expression, from left to right."""
    if isinstance(tree, int):
        return [tree]
    return find_numbers(tree.left) + find_numbers(tree.right)


def evaluate(tree: Expression) -> Fraction:
    """The exact value.

    Raises:
        ZeroDivisionError: It divides by zero.
    """
    if isinstance(tree, int):
        return Fraction(tree)
    left, right = evaluate(tree.left), evaluate(tree.right)
    match tree.operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case _:
            return left / right


def _tokenize(text: str) -> list[str]:
    for pattern, spelling in _SPELLINGS:
        text = pattern.sub(spelling, text)
    text = text.strip()
    tokens, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise Unreadable(f"{text[position : position + 20]!r} is no number and no operator")
        tokens.append(match["number"] or match["mark"])
        position = match.end()
    if sum(token.isdigit() for token in tokens) > MAX_NUMBERS:
        raise Unreadable(f"more than {MAX_NUMBERS} numbers")
    return tokens


class _Reader:
    """Reads tokens from the left; `token` is the next one, empty at the end."""

    def __init__(self, tokens: list[str]) -> None:
        self._rest: Iterator[str] = iter(tokens)
        self.token = next(self._rest, "")

    def read_sum(self, depth: int) -> Expression:
        tree = self._read_product(depth)
        while self.token in ("+", "-"):
            tree = Operation(self._take(), tree, self._read_product(depth))
        return tree

    def _read_product(self, depth: int) -> Expression:
        tree = self._read_factor(depth)
        while self.token in ("*", "/"):
            tree = Operation(self._take(), tree, self._read_factor(depth))
        return tree

    def _read_factor(self, depth: int) -> Expression:
        if depth > MAX_DEPTH:
            raise Unreadable(f"nested more than {MAX_DEPTH} deep")
        if self.token.isdigit():
            return int(self._take())
        if self.token == "\\frac":  # noqa: S105 - no password
            self._take()
            return Operation("/", self._read_group("{}", depth), self._read_group("{}", depth))
        return self._read_group("()", depth)

    def _read_group(self, marks: str, depth: int) -> Expression:
        self._expect(marks[0])
        tree = self.read_sum(depth + 1)
        self._expect(marks[1])
        return tree

    def _take(self) -> str:
        token, self.token = self.token, next(self._rest, "")
        return token

    def _expect(self, mark: str) -> None:
        if self._take() != mark:
            raise Unreadable(f"there is no {mark!r} where one belongs")
