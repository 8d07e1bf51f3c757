"""Values of expressions at chosen points, over any arithmetic.

Floats to tell apart, mpmath to confirm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

from verifiers.maths.exact import evaluate
from verifiers.maths.expressions import Apply, Expression, Number, Symbol

RECIPROCALS = {"sec": "cos", "csc": "sin", "cot": "tan", "coth": "tanh"}
MAX_DEGREE = 64


class Undefined(Exception):
    """There is no value at this point, or not in this arithmetic."""


class Arithmetic(Protocol):
    """The numbers and functions that `evaluate_at` uses; `cmath`-like."""

    pi: Any
    e: Any

    def number(self, numerator: int, denominator: int) -> Any:
        """A rational number."""
        ...

    def power(self, base: Any, exponent: Any) -> Any:
        """Principal value."""
        ...

    def real_root(self, value: Any, degree: int) -> Any | None:
        """The real odd root of a negative number; None where the principal value is meant."""
        ...

    def function(self, name: str, value: Any) -> Any:
        """A function of one argument by its LaTeX name."""
        ...

    def factorial(self, value: Any) -> Any:
        """Gamma(value + 1)."""
        ...

    def imaginary(self) -> Any:
        """The imaginary unit."""
        ...


def evaluate_at(expression: Expression, point: Mapping[str, Any], numbers: Arithmetic) -> Any:
    """The value of an expression.

    Args:
        expression: What to evaluate.
        point: Values of the free symbols; a function that is only a name is `@name` and takes one
            argument.
        numbers: The arithmetic.

    Raises:
        Undefined: No value here.
    """
    match expression:
        case Number(value):
            return numbers.number(value.numerator, value.denominator)
        case Symbol("pi"):
            return numbers.pi
        case Symbol("e"):
            return numbers.e
        case Symbol("i"):
            return numbers.imaginary()
        case Symbol(name):
            if name not in point:
                raise Undefined(name)
            return point[name]
        case Apply(op, args):
            values = [evaluate_at(arg, point, numbers) for arg in args]
            try:
                return _apply(op, values, args, point, numbers)
            except (ArithmeticError, ValueError, TypeError) as error:
                raise Undefined(op) from error
    raise Undefined(str(expression))


def _apply(  # noqa: C901, PLR0911, PLR0912 - one case for each operation
    op: str,
    values: list[Any],
    args: tuple[Expression, ...],
    point: Mapping[str, Any],
    n: Arithmetic,
) -> Any:
    match op, values:
        case "add", _:
            return sum(values[1:], start=values[0])
        case "mul", _:
            return math.prod(values[1:], start=values[0])
        case "neg", [a]:
            return (
                n.number(0, 1) - a
            )  # not `-a`: a negative zero as imaginary part changes the branch
        case "div", [a, b]:
            return a / b
        case "percent", [a]:
            return a / n.number(100, 1)
        case "degree", [a]:
            return a * n.pi / n.number(180, 1)
        case "abs", [a]:
            return abs(a)
        case "pow", [a, b]:
            return _power(a, b, args[1], n)
        case "root", [a, degree]:
            root = _root_degree(args[1])
            real = n.real_root(a, root) if root % 2 else None
            return n.power(a, n.number(1, 1) / degree) if real is None else real
        case "factorial", [a]:
            return n.factorial(a)
        case "binom", [a, b]:
            return n.factorial(a) / (n.factorial(b) * n.factorial(a - b))
        case "log", [a, base]:
            return n.function("ln", a) / n.function("ln", base)
        case (("log" | "ln"), [a]):
            return n.function("ln", a)
        case _, [a] if op in RECIPROCALS:
            return n.number(1, 1) / n.function(RECIPROCALS[op], a)
        case _, [a] if op[0] == "@":
            # Any function will do, so long as both sides use the same: this one has no symmetry.
            return a * a * point[op] + n.function("exp", a) + point[op]
        case _, [a]:
            return n.function(op, a)
    raise Undefined(op)


def _power(a: Any, b: Any, exponent: Expression, n: Arithmetic) -> Any:
    """`a` to the `b`; real where the exponent's denominator is odd, as `(-8)^{1/3} = -2`."""
    if not a and not b:
        raise Undefined("0^0")
    written = evaluate(exponent)
    if written is not None and written.denominator % 2 and 1 < written.denominator <= MAX_DEGREE:
        real = n.real_root(a, written.denominator)
        if real is not None:
            return n.power(real, n.number(written.numerator, 1))
    return n.power(a, b)


def _root_degree(degree: Expression) -> int:
    if (
        isinstance(degree, Number)
        and degree.value.denominator == 1
        and 2 <= degree.value <= MAX_DEGREE
    ):
        return int(degree.value)
    return 0
