"""Whether two expressions are the same function.

Exactly, by float probes, or to a hundred digits.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any, Protocol

from verifiers.maths.exact import evaluate
from verifiers.maths.expressions import Apply, Expression, find_symbols
from verifiers.maths.numeric_value import Undefined, evaluate_at

NUM_POINTS = 6
NUM_POSITIVE_POINTS = 3
FLOAT_RELATIVE = 1e-6
FLOAT_ABSOLUTE = 1e-9


class Equality(Protocol):
    """Decides about expressions; None where it cannot."""

    def same(self, a: Expression, b: Expression) -> bool | None:
        """Whether two expressions are equal wherever both are defined."""
        ...

    def proportion(self, a: Expression, b: Expression) -> int | None:
        """Sign of the constant that `a` is of `b`; 0 when there is no such constant."""
        ...


class QuickEquality:
    """Structure, rational arithmetic and float probes.

    Can prove equality of rationals and inequality of anything.

    Args:
        assume_positive: Probe at positive values only.
    """

    def __init__(self, *, assume_positive: bool) -> None:
        self.num_points = NUM_POSITIVE_POINTS if assume_positive else NUM_POINTS

    def same(self, a: Expression, b: Expression) -> bool | None:
        """See `Equality`.

        Raises:
            TooCostly: Exact arithmetic would need too large numbers.
        """
        if a == b:
            return True
        left, right = evaluate(a), evaluate(b)
        if left is not None and right is not None:
            return left == right
        if find_symbols(a) != find_symbols(b):
            return False
        for x, y in self._values(a, b):
            difference = abs(x - y)
            if difference > FLOAT_ABSOLUTE and difference > FLOAT_RELATIVE * max(abs(x), abs(y)):
                return False
        return None

    def proportion(self, a: Expression, b: Expression) -> int | None:
        """See `Equality`."""
        if not find_symbols(a) or find_symbols(a) != find_symbols(b):
            return 0
        ratios = [x / y for x, y in self._values(a, b) if abs(y) > FLOAT_ABSOLUTE]
        if any(abs(r - ratios[0]) > FLOAT_RELATIVE * abs(ratios[0]) for r in ratios):
            return 0
        return None

    def _values(self, a: Expression, b: Expression) -> Iterable[tuple[complex, complex]]:
        for x, y in probe(a, b, self.num_points, FloatArithmetic()):
            if cmath.isfinite(x) and cmath.isfinite(y):
                yield x, y


def probe(a: Expression, b: Expression, num_points: int, numbers: Any) -> Iterable[tuple[Any, Any]]:
    """Values of both expressions at fixed points; points where one has none are left out."""
    names = sorted(find_symbols(a) | find_symbols(b))
    for k in range(num_points if names else 1):
        point = {}
        for j, name in enumerate(names):
            value = Fraction(7 + (31 * (j + 1) + 17 * (k + 1) * (j + 2)) % 89, 23)
            negative = k >= NUM_POSITIVE_POINTS and (k == NUM_POSITIVE_POINTS or (j + k) % 2 == 0)
            value = -value if negative else value
            point[name] = numbers.number(value.numerator, value.denominator)
        try:
            yield evaluate_at(a, point, numbers), evaluate_at(b, point, numbers)
        except (Undefined, ArithmeticError):
            continue


def difference(a: Expression, b: Expression) -> Expression:
    """`a - b`."""
    return Apply("add", (a, Apply("neg", (b,))))


def float_value(expression: Expression) -> float | None:
    """A real constant as a float; None when it is none."""
    try:
        value = evaluate_at(expression, {}, FloatArithmetic())
    except (Undefined, ArithmeticError):
        return None
    real = abs(value.imag) <= FLOAT_ABSOLUTE * abs(value)
    return value.real if real and math.isfinite(value.real) else None


class FloatArithmetic:
    """Complex floats."""

    pi = complex(math.pi)
    e = complex(math.e)

    def number(self, numerator: int, denominator: int) -> complex:
        """See `Arithmetic`."""
        return complex(Fraction(numerator, denominator))

    def imaginary(self) -> complex:
        """See `Arithmetic`."""
        return 1j

    def power(self, base: complex, exponent: complex) -> complex:
        """See `Arithmetic`."""
        return base**exponent

    def real_root(self, value: complex, degree: int) -> complex | None:
        """See `Arithmetic`."""
        if value.imag or value.real >= 0:
            return None
        return complex(-((-value.real) ** (1 / degree)))

    def factorial(self, value: complex) -> complex:
        """See `Arithmetic`."""
        if value.imag:
            raise Undefined("factorial")
        return complex(math.gamma(value.real + 1))

    def function(self, name: str, value: complex) -> complex:
        """See `Arithmetic`."""
        functions: dict[str, Callable[[complex], complex]] = {
            "sin": cmath.sin, "cos": cmath.cos, "tan": cmath.tan, "sinh": cmath.sinh,
            "cosh": cmath.cosh, "tanh": cmath.tanh, "arcsin": cmath.asin, "arccos": cmath.acos,
            "arctan": cmath.atan, "ln": cmath.log, "exp": cmath.exp,
        }  # fmt: skip
        if name not in functions:
            raise Undefined(name)
        return functions[name](value)
