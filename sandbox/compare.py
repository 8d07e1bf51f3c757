"""When an output, or a returned value, is the expected one."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

ComparerKind = Literal["lines", "tokens", "floats", "exact"]
COMPARERS: tuple[ComparerKind, ...] = ("lines", "tokens", "floats", "exact")

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?")
# Longer tokens are compared as text: no number that a judge expects is so long, and parsing one can
# be made costly.
_MAX_NUMBER_CHARS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparer:
    r"""A rule for two texts.

    Attributes:
        kind: `lines`: equal line by line, white space at line ends and blank lines at the end left
            out. `tokens`: equal words, all white space alike. `floats`: as `tokens`, but where the
            expected word is written as a floating-point number, one within the tolerance will do.
            `exact`: byte for byte.
        abs_tol: Absolute tolerance of `floats`.
        rel_tol: Relative tolerance of `floats`; meeting either is enough.
        ignore_case: Whether upper and lower case are alike; not for `exact`.

    Example:
        >>> Comparer(kind="floats").same("0.3333333\n", "0.33333333")
        True
    """

    kind: ComparerKind = "lines"
    abs_tol: float = 1e-6
    rel_tol: float = 1e-6
    ignore_case: bool = False

    def same(self, output: str, expected: str) -> bool:
        """Whether the output is as expected."""
        if self.kind == "exact":
            return output == expected
        if self.ignore_case:
            output, expected = output.casefold(), expected.casefold()
        if self.kind == "lines":
            return _lines(output) == _lines(expected)
        ours, theirs = output.split(), expected.split()
        if self.kind == "tokens":
            return ours == theirs
        return len(ours) == len(theirs) and all(map(self._same_token, ours, theirs))

    def _same_token(self, token: str, expected: str) -> bool:
        if token == expected:
            return not _is_nan(expected)
        if not _is_float(expected):
            return False
        if len(token) > _MAX_NUMBER_CHARS or not _NUMBER.fullmatch(token):
            return False
        return _close(float(token), float(expected), self.abs_tol, self.rel_tol)


def same_value(value: Any, expected: Any, *, abs_tol: float = 1e-6, rel_tol: float = 1e-6) -> bool:
    """Whether a returned value is the expected one.

    A tuple equals a list of the same items, since JSON knows only lists. A `bool` never equals an
    `int`. Where a `float` is expected, a number within the tolerance will do; where an `int` is
    expected, only that `int` does. NaN equals nothing. A value of a foreign type (`Opaque`) equals
    nothing.

    Args:
        value: Of exact built-in types, as it came out of the sandbox.
        expected: What the test says.
        abs_tol: Absolute tolerance where a `float` is expected.
        rel_tol: Relative tolerance there; meeting either is enough.
    """

    def same(ours: Any, theirs: Any) -> bool:
        if isinstance(theirs, float):
            number = isinstance(ours, (int, float)) and not isinstance(ours, bool)
            return number and _close(ours, theirs, abs_tol, rel_tol)
        if isinstance(theirs, (list, tuple)):
            if not isinstance(ours, (list, tuple)) or len(ours) != len(theirs):
                return False
            return all(map(same, ours, theirs))
        if type(ours) is not type(theirs):
            return False
        if isinstance(theirs, dict):
            return _same_keys(ours, theirs) and all(same(ours[key], theirs[key]) for key in theirs)
        return bool(ours == theirs)

    return same(value, expected)


def _same_keys(ours: Mapping[Any, Any], theirs: Mapping[Any, Any]) -> bool:
    # With types: True and 1 are the same key to a dict, but not the same answer.
    return {(type(key), key) for key in ours} == {(type(key), key) for key in theirs}


def _close(ours: float, theirs: float, abs_tol: float, rel_tol: float) -> bool:
    try:
        return math.isclose(ours, theirs, rel_tol=rel_tol, abs_tol=abs_tol)
    except OverflowError:
        return False  # an int beyond every float


def _lines(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _is_float(token: str) -> bool:
    if len(token) > _MAX_NUMBER_CHARS or not _NUMBER.fullmatch(token):
        return False
    return any(mark in token for mark in ".eE")


def _is_nan(token: str) -> bool:
    return token.lstrip("+-").casefold() == "nan"
