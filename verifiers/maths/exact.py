"""Exact rational values, for the great majority of answers that have one."""

from __future__ import annotations

import math
from fractions import Fraction

from verifiers.maths.expressions import Apply, Expression, Number

MAX_BITS = 20_000
MAX_EXPONENT = 10_000
MAX_FACTORIAL = 1_000


class TooCostly(Exception):
    """Exact arithmetic would need numbers beyond the limits."""


def evaluate(expression: Expression) -> Fraction | None:
    """The expression's rational value; None when it has symbols, roots, functions or no value.

    Raises:
        TooCostly: A number on the way would be too large.
    """
    if isinstance(expression, Number):
        return expression.value
    if not isinstance(expression, Apply):
        return None
    values = [evaluate(arg) for arg in expression.args]
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values):
        return None
    result = _apply(expression.op, numbers)
    if result is not None and _bits(result) > MAX_BITS:
        raise TooCostly(expression.op)
    return result


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _apply(  # noqa: C901, PLR0911, PLR0912 - one case for each operation
    op: str, args: list[Fraction]
) -> Fraction | None:
    match op, args:
        case "add", _:
            return sum(args, Fraction(0))
        case "mul", _:
            return math.prod(args, start=Fraction(1))
        case "neg", [a]:
            return -a
        case "div", [a, b]:
            return a / b if b else None
        case "percent", [a]:
            return a / 100
        case "abs", [a]:
            return abs(a)
        case "floor", [a]:
            return Fraction(math.floor(a))
        case "ceil", [a]:
            return Fraction(math.ceil(a))
        case "pow", [base, exponent]:
            return _power(base, exponent)
        case "root", [a, degree]:
            return _root(a, degree)
        case (("factorial" | "doublefactorial"), [a]):
            return _factorial(a, 1 if op == "factorial" else 2)
        case "binom", [n, k]:
            if n.denominator == k.denominator == 1 and n >= 0 and k >= 0:
                if n > MAX_FACTORIAL:
                    raise TooCostly(op)
                return Fraction(math.comb(int(n), int(k)))
        case (("lcm" | "gcd"), _) if all(a.denominator == 1 for a in args):
            function = math.lcm if op == "lcm" else math.gcd
            return Fraction(function(*(int(a) for a in args)))
        case (("max" | "min"), [_, *_]):
            return max(args) if op == "max" else min(args)
    return None


def _power(base: Fraction, exponent: Fraction) -> Fraction | None:
    if exponent.denominator != 1 or (not base and exponent <= 0):
        return None
    if abs(exponent) > MAX_EXPONENT or abs(exponent) * _bits(base) > MAX_BITS:
        if abs(base) in (0, 1):
            return abs(base) if exponent % 2 == 0 else base
        raise TooCostly("pow")
    return base ** int(exponent)


def _root(a: Fraction, degree: Fraction) -> Fraction | None:
    """A root that is rational; None for any other."""
    if degree.denominator != 1 or not 2 <= degree <= 64:
        return None
    n = int(degree)
    if a < 0:
        root = _root(-a, degree) if n % 2 else None
        return None if root is None else -root
    upper, lower = _integer_root(a.numerator, n), _integer_root(a.denominator, n)
    return Fraction(upper, lower) if upper**n == a.numerator and lower**n == a.denominator else None


def _integer_root(value: int, degree: int) -> int:
    if degree == 2:
        return math.isqrt(value)
    low, high = 0, 1 << (value.bit_length() // degree + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**degree <= value else (low, middle - 1)
    return low


def _factorial(a: Fraction, step: int) -> Fraction | None:
    if a.denominator != 1 or a < 0:
        return None
    if a > MAX_FACTORIAL:
        raise TooCostly("factorial")
    return Fraction(math.prod(range(int(a), 0, -step)))
