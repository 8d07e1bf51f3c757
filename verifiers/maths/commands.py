r"""What a command of LaTeX stands for, with the arguments that it takes: `\frac12`, `\sin^2 x`."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from verifiers.maths.expressions import Apply, Expression, Number, Symbol, Unreadable
from verifiers.maths.names import read_decoration, read_letters
from verifiers.maths.vocabulary import (
    ACCENTS,
    BINOMIALS,
    FRACTIONS,
    FUNCTIONS,
    GREEK,
    INVERSES,
    MANY_ARGUMENTS,
    ROUNDING,
)
from verifiers.maths.written_fractions import read_fraction_arguments

if TYPE_CHECKING:  # it reads commands, and they read their arguments with it
    from verifiers.maths.parser import Parser


def read_command(parser: Parser) -> Expression:  # noqa: C901, PLR0911 - one case for each family
    """Read the command that comes next, with its arguments.

    Raises:
        Unreadable: It is not known here, or an argument is missing.
    """
    name = parser.next().text
    if name in FRACTIONS:
        return Apply("div", read_fraction_arguments(parser))
    if name in BINOMIALS:
        return Apply("binom", (parser.argument(), parser.argument()))
    if name == "sqrt":
        return _read_root(parser)
    if name in MANY_ARGUMENTS:
        return Apply(name, _read_list(parser))
    if name in FUNCTIONS:
        return _read_function(parser, name)
    if name in ROUNDING:
        op, closing = ROUNDING[name]
        return Apply(op, (parser.enclosed(closing, kind="command"),))
    if name == "pi":
        return Symbol("pi")
    if name == "infty":
        return Symbol("oo")
    if name in GREEK:
        return Symbol(name + read_decoration(parser))
    if name in ACCENTS:
        return Symbol(f"{name} {read_letters(parser)}" + read_decoration(parser))
    if name == "angle":
        return Symbol(f"angle {read_letters(parser)}")
    if name in ("lvert", "vert", "|"):
        raise Unreadable("norms are not read")
    raise Unreadable(f"unknown command {name!r}")


def _read_root(parser: Parser) -> Expression:
    degree: Expression = Number(Fraction(2))
    if parser.take("["):
        degree = parser.sum()
        parser.expect("]")
    return Apply("root", (parser.argument(), degree))


def _read_list(parser: Parser) -> tuple[Expression, ...]:
    r"""`(a, b)`, or `\{a, b\}` after a maximum."""
    kind = "command" if parser.at("{", kind="command") else "mark"
    parser.expect("{" if kind == "command" else "(", kind=kind)
    arguments = [parser.sum()]
    while parser.take(","):
        arguments.append(parser.sum())
    parser.expect("}" if kind == "command" else ")", kind=kind)
    return tuple(arguments)


def _read_function(parser: Parser, name: str) -> Expression:
    base: Expression | None = None
    if name == "log" and parser.take("_"):
        base = parser.argument()
    exponent = None
    if parser.take("^"):
        sign = parser.take("-")
        exponent = parser.argument()
        exponent = Apply("neg", (exponent,)) if sign else exponent
        if exponent == Apply("neg", (Number(Fraction(1)),)):
            name, exponent = _invert(name), None
    argument = parser.group() if parser.at("(", "{", "[") else parser.bare_argument()
    if name == "lg":
        name, base = "log", Number(Fraction(10))
    result: Expression = Apply(name, (argument,) if base is None else (argument, base))
    return result if exponent is None else Apply("pow", (result, exponent))


def _invert(name: str) -> str:
    r"""The function that `\sin^{-1}` stands for."""
    if name not in INVERSES:
        raise Unreadable("an inverse function or a power")
    return INVERSES[name]
