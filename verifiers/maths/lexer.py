"""From cleaned LaTeX to tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from verifiers.maths.expressions import Number, Unreadable
from verifiers.maths.units import is_letter_in_text, is_symbol, read_unit

Kind = Literal["number", "command", "letter", "text", "mark"]
MAX_TOKENS = 2000
MAX_DIGITS = 4000

_COMMAND_WORDS = """
sqrt sin cos tan cot sec csc sinh cosh tanh log ln lg exp pi lcm gcd max min arcsin arccos
arctan
"""
WORDS = {  # runs of plain letters that are one command
    **{name: name for name in _COMMAND_WORDS.split()},
    "infinity": "infty",
    "infty": "infty",
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
}
JOINERS = frozenset({"and", "or"})

_TOKEN = re.compile(
    r"""(?P<space>\s+)
    |\\(?:text|textbf|textit|textrm|textnormal|mathrm|rm|mbox|hbox|operatorname\*?)\s*\{(?P<text>[^{}]*(?:\{[^{}]*\}[^{}]*)*)\}
    |(?P<repeating>\d*\.\d*\\(?:overline|bar|dot)\s*\{\d+\}(?:\d*\\dot\{\d\})?|\d*\.\d*\\(?:overline|bar|dot)\s?\d)
    |(?P<number>(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+(?![\d.]))?) |\\(?P<command>[a-zA-Z]+|.)
    |(?P<word>[a-zA-Z]+)
    |(?P<mark>.)""",
    re.VERBOSE | re.DOTALL,
)
_MATHS_IN_TEXT = re.compile(r"(?:[a-zA-Z]\s*=\s*)?(?:\\\$)?[-+]?\d+(?:\.\d+)?%?")
_REPEATING = re.compile(r"(\d*)\.(\d*)\\(overline|bar|dot)\s?\{?(\d+)\}?(?:(\d*)\\dot\{(\d)\})?")


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of LaTeX.

    Attributes:
        kind: What it is.
        text: A command without its backslash, a letter, a mark, the content of a text command.
        spaced: Whether white space stands before it.
        number: The value, where `kind` is `number`.
    """

    kind: Kind
    text: str
    spaced: bool = False
    number: Number | None = None


def tokenize(text: str) -> list[Token]:
    """The tokens of a cleaned answer.

    Raises:
        Unreadable: Too many tokens or too long a number.
    """
    tokens: list[Token] = []
    spaced = False
    for match in _TOKEN.finditer(text):
        kind, piece = match.lastgroup, match.group(match.lastgroup or 0)
        if kind == "space":
            spaced = True
            continue
        if len(tokens) >= MAX_TOKENS:
            raise Unreadable("too many tokens")
        match kind:
            case "number":
                tokens.append(Token("number", piece, spaced, _read_number(piece)))
            case "repeating":
                tokens.append(Token("number", piece, spaced, _read_repeating(piece)))
            case "text":
                text = piece.strip()
                tokens.extend(_read_text(text, spaced, after_number=_end_in_number(tokens)))
            case "command":
                tokens.append(Token("command", piece, spaced))
            case "word":
                tokens.extend(_read_word(piece, spaced))
            case _:
                tokens.append(Token("mark", piece, spaced))
        spaced = False
    return tokens


def _read_word(word: str, spaced: bool) -> list[Token]:
    if word in WORDS:
        return [Token("command", WORDS[word], spaced)]
    if word in JOINERS:
        return [Token("text", word, spaced)]
    return [Token("letter", c, spaced and not i) for i, c in enumerate(word)]


def _end_in_number(tokens: Sequence[Token]) -> bool:
    """Whether a number stands last, or a number to a power in braces, as `10^{-19}`."""
    if not tokens or tokens[-1].text != "}":
        return bool(tokens) and tokens[-1].kind == "number"
    start = next((i for i in range(len(tokens) - 1, -1, -1) if tokens[i].text == "{"), 0)
    return start > 1 and tokens[start - 1].text == "^" and tokens[start - 2].kind == "number"


def _read_text(content: str, spaced: bool, *, after_number: bool) -> list[Token]:
    r"""A text command that holds mathematics is mathematics.

    `\text{27}`, `\mathrm{e}`, `\text{lcm}`.
    """
    if content.lower() == "percent":
        return [Token("command", "%", spaced)]
    is_unit = is_letter_in_text(content) if after_number else is_symbol(content)
    if len(content) == 1 and content.isalpha() and not is_unit:
        return [Token("letter", content, spaced)]
    if content.lower() in WORDS and content != "min":  # minutes
        return [Token("command", WORDS[content.lower()], spaced)]
    if _MATHS_IN_TEXT.fullmatch(content):
        return tokenize(content)
    counted = re.fullmatch(r"(\d+(?:\.\d+)?)\s+([a-zA-Z].*)", content)
    if counted and read_unit(counted[2]):
        return [*tokenize(counted[1]), Token("text", counted[2], spaced=True)]
    return [Token("text", content, spaced)] if content.strip(" .,;:!") else []


def _read_number(piece: str) -> Number:
    mantissa, _, exponent = piece.lower().partition("e")
    if len(mantissa) > MAX_DIGITS or len(exponent) > 4:
        raise Unreadable("too long a number")
    value = Fraction(piece)
    whole, point, fraction = mantissa.partition(".")
    if exponent or not point:  # a power of ten says what it means exactly
        return Number(value)
    return Number(value, len(fraction), len((whole + fraction).lstrip("0")))


def _read_repeating(piece: str) -> Number:
    match = _REPEATING.fullmatch(piece)
    if match is None or len(piece) > 200:
        raise Unreadable(f"not a repeating decimal: {piece}")
    whole, fixed, command, repeated, middle, last = match.groups()
    if command == "dot" and last is not None:
        repeated = repeated + (middle or "") + last
    value = Fraction(int(whole or 0)) + (
        Fraction(int(fixed or 0)) + Fraction(int(repeated), 10 ** len(repeated) - 1)
    ) / 10 ** len(fixed)
    return Number(value)
