r"""Fractions as they are written: `\frac` with its arguments, and the `1/2` of `3 1/2`."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from verifiers.maths.expressions import Expression, Number, Unreadable
from verifiers.maths.vocabulary import FRACTIONS

if TYPE_CHECKING:  # it reads fractions, and they read their arguments with it
    from verifiers.maths.parser import Parser


def read_fraction_arguments(parser: Parser) -> tuple[Expression, Expression]:
    r"""Arguments of `\frac`; digits without braces are one each, as TeX takes them.

    `\frac12`.
    """
    token = parser.peek()
    if token is not None and token.number is not None and len(token.text) > 1:
        if len(token.text) != 2 or not token.text.isdigit():
            raise Unreadable("a fraction of digits without braces")
        parser.place += 1
        return Number(Fraction(int(token.text[0]))), Number(Fraction(int(token.text[1])))
    upper = _read_fraction_argument(parser)
    return upper, _read_fraction_argument(parser)


def read_mixed_part(parser: Parser) -> Fraction | None:
    r"""The proper fraction of a mixed number: `\frac{1}{2}`, or `1/2` after a space."""
    start = parser.place
    if parser.take(*FRACTIONS, kind="command"):
        try:
            upper, lower = read_fraction_arguments(parser)
        except Unreadable:
            parser.place = start
            return None
    elif (
        (first := parser.peek()) is not None
        and first.number is not None
        and first.spaced
        and parser.at("/", offset=1)
        and (third := parser.peek(2)) is not None
        and third.number is not None
    ):
        parser.place += 3
        upper, lower = first.number, third.number
    else:
        return None
    if (
        isinstance(upper, Number)
        and isinstance(lower, Number)
        and upper.value.denominator == lower.value.denominator == 1
        and 0 < upper.value < lower.value
    ):
        return upper.value / lower.value
    parser.place = start
    return None


def _read_fraction_argument(parser: Parser) -> Expression:
    token = parser.peek()
    if token is not None and token.number is not None:
        if len(token.text) != 1:
            raise Unreadable("a fraction of digits without braces")
        parser.place += 1
        return token.number
    return parser.argument()
