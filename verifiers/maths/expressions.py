"""What a mathematical expression is once it has been read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

CONSTANTS = frozenset({"pi", "e", "i", "oo"})


class Unreadable(Exception):
    """The text is not, from its first to its last character, an answer of a known form."""


@dataclass(frozen=True, slots=True)
class Number:
    """A literal.

    Attributes:
        value: Exactly what was written.
        places: Digits after the decimal point; None for a literal that is exact (an integer, a
            repeating decimal).
        digits: Significant digits of a decimal literal.
    """

    value: Fraction
    places: int | None = None
    digits: int = 0


@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable with its subscript and primes, or one of `CONSTANTS`."""

    name: str


@dataclass(frozen=True, slots=True)
class Apply:
    """An operation or function on expressions."""

    op: str
    args: tuple[Expression, ...]


Expression = Number | Symbol | Apply


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and everything within it."""
    stack = [expression]
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, Apply):
            stack.extend(node.args)


def find_symbols(expression: Expression) -> frozenset[str]:
    """Names of the free symbols."""
    names = {n.name for n in walk(expression) if isinstance(n, Symbol)}
    functions = {n.op for n in walk(expression) if isinstance(n, Apply) and n.op[:1] == "@"}
    return frozenset(names - CONSTANTS) | functions


def replace_symbol(expression: Expression, name: str, by: Expression) -> Expression:
    """The expression with every occurrence of a symbol replaced."""
    match expression:
        case Symbol(found) if found == name:
            return by
        case Apply(op, args):
            return Apply(op, tuple(replace_symbol(arg, name, by) for arg in args))
    return expression


def expand_signs(expression: Expression) -> tuple[Expression, ...]:
    """The two expressions that a plus-minus stands for.

    The expression itself where there is none.
    """
    if not any(isinstance(n, Apply) and n.op in ("pm", "mp") for n in walk(expression)):
        return (expression,)
    return _choose_sign(expression, upper=True), _choose_sign(expression, upper=False)


def _choose_sign(expression: Expression, *, upper: bool) -> Expression:
    if not isinstance(expression, Apply):
        return expression
    args = tuple(_choose_sign(arg, upper=upper) for arg in expression.args)
    if expression.op in ("pm", "mp"):
        plus = upper == (expression.op == "pm")
        return args[0] if plus else Apply("neg", args)
    return Apply(expression.op, args)
