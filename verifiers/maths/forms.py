"""Answers whose form the whole text shows: choices, numbers in a base, times of day, matrices."""

from __future__ import annotations

import re

from verifiers.maths.answers import Answer, BaseNumber, Choice, Clock, Matrix
from verifiers.maths.exact import evaluate
from verifiers.maths.expressions import Apply, Expression, Number, Unreadable
from verifiers.maths.lexer import tokenize
from verifiers.maths.parser import parse_expression

_OPEN = r"(?:\\(?:text|textbf|textit|textrm|mathrm|mbox)\s*)?\{?\s*"
_BASE = re.compile(
    r"\(?((?:[0-9a-zA-Z]|\\(?:text|mathrm)\{[0-9a-zA-Z]+\})+)\)?"
    r"_\{?(?:\\text\{)?(?P<base>\d{1,2}|[a-z]{3,7})\}{0,2}"
)
_BASES = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "eleven": 11, "twelve": 12, "sixteen": 16,
}  # fmt: skip
_TEXT_MARKS = re.compile(r"\\(?:text|mathrm)|[{}]")
_HALF = r"(?P<half>[aApP])\.?\s?[mM]\.?"
_CLOCK = re.compile(rf"(?P<hour>\d{{1,2}}):(?P<minute>[0-5]\d)\s*{_OPEN}(?:{_HALF})?\s*\}}?")
_HOUR = re.compile(rf"(?P<hour>\d{{1,2}})\s*{_OPEN}{_HALF}\s*\}}?")
_CHOICE = re.compile(rf"{_OPEN}\(?\s*([A-J])\s*\)?\s*\}}?")
# `\textbf{(C)}\ 12`, as contests print the right option.
_MARKED_CHOICE = re.compile(r"\\text(?:bf|it|rm)?\s*\{\s*\(\s*([A-J])\s*\)\s*\}.+", re.DOTALL)
_MATRIX = re.compile(
    r"(?P<before>[^\\]*?|\\(?:vec|mathbf|overrightarrow)\s*\{?[A-Za-z]{1,2}\}?\s*=|\\[dt]?frac\{\d+\}\{\d+\}|\\[dt]?frac\d\d|-)\s*"
    r"[(\[]?\\begin\{(?P<kind>(?:[pbB]|small)?matrix|array)\}(?:\{[clr|]+\})?"
    r"(?P<body>.*)\\end\{(?P=kind)\}[)\]]?",
    re.DOTALL,
)
_NAME_BEFORE = re.compile(
    r"\(?\s*(?:\\(?:vec|mathbf|overrightarrow)\s*\{?)?[A-Za-z]{1,2}\}?(?:_\{?\w+\}?)?\s*=\s*\(?|\(?"
)
_NESTED_ROWS = re.compile(r"\[\s*\[[^\[\]]*\](?:\s*,\s*\[[^\[\]]*\])*\s*\]")
_ROW = re.compile(r"\[([^\[\]]*)\]")


def read_form(text: str) -> Answer | None:
    """The answer, or None where the text has none of these forms.

    Args:
        text: As `clean` leaves it.

    Raises:
        Unreadable: A matrix whose rows differ in length, or whose entries are no expressions.
    """
    if match := _CHOICE.fullmatch(text) or _MARKED_CHOICE.fullmatch(text):
        return Choice(match[1])
    if match := _BASE.fullmatch(text):
        written = _TEXT_MARKS.sub("", match[1])
        digits = written.lower()
        named = match["base"]
        base = int(named) if named.isdigit() else _BASES.get(named, 0)
        letters = base == 16 and len(written) > 1 and written.isupper()
        fits = 2 <= base <= 36 and all(int(digit, 36) < base for digit in digits)
        if fits and (written[0].isdigit() or letters):
            return BaseNumber(digits.lstrip("0") or "0", base)
    if match := _CLOCK.fullmatch(text) or _HOUR.fullmatch(text):
        found = match.groupdict()
        return Clock(
            int(match["hour"]), int(found.get("minute") or 0), (match["half"] or "").lower()
        )
    if match := _MATRIX.fullmatch(text):
        rows = re.split(r"\\\\|\\cr(?![a-z])", match["body"])
        table = [row.split("&") for row in rows if row.strip()]
        return _read_matrix(table, match["before"])
    if _NESTED_ROWS.fullmatch(text):
        return _read_matrix([row.split(",") for row in _ROW.findall(text[1:-1])], "")
    return None


def _read_matrix(table: list[list[str]], before: str) -> Matrix:
    if not table or len({len(row) for row in table}) != 1:
        raise Unreadable("rows of different lengths")
    factor = None if _NAME_BEFORE.fullmatch(before) else _read_factor(before)
    return Matrix(tuple(tuple(_read_entry(cell, factor) for cell in row) for row in table))


def _read_factor(text: str) -> Expression:
    return _read_expression(f"{text}1" if text == "-" else text)


def _read_entry(text: str, factor: Expression | None) -> Expression:
    entry = _read_expression(text)
    if factor is None:
        return entry
    product = Apply("mul", (factor, entry))
    value = evaluate(product)
    return product if value is None else Number(value)


def _read_expression(text: str) -> Expression:
    return parse_expression(tokenize(text))
