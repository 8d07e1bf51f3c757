"""The slow half of a comparison, run in a worker process: equality to a hundred digits."""

from __future__ import annotations

from typing import Any

import mpmath

from verifiers.maths.answers import Answer
from verifiers.maths.compare import Finding, compare
from verifiers.maths.equality import QuickEquality, probe
from verifiers.maths.exact import TooCostly
from verifiers.maths.expressions import Expression
from verifiers.maths.options import MathOptions

DIGITS = 60
# Twice the digits shrink the difference of equals by this much; that of unequals stays.
SHRINKS = mpmath.mpf(10) ** -40


def compare_fully(gold: Answer, prediction: Answer, options: MathOptions) -> Finding | None:
    """Compare with nothing left undecided; None when the numbers become too large."""
    try:
        return compare(
            gold, prediction, options, FullEquality(assume_positive=options.assume_positive)
        )
    except TooCostly:
        return None


class FullEquality(QuickEquality):
    """Decides what the quick tests leave open by values of 60 and 120 digits at the same points."""

    def same(self, a: Expression, b: Expression) -> bool:
        """Whether the difference vanishes at every point where both are defined."""
        quick = super().same(a, b)
        if quick is not None:
            return quick
        return self._vanish(
            [(x - y, max(abs(x), abs(y))) for x, y in self._at(a, b, DIGITS)],
            [(x - y, max(abs(x), abs(y))) for x, y in self._at(a, b, 2 * DIGITS)],
        )

    def proportion(self, a: Expression, b: Expression) -> int:
        """Sign of the constant ratio of the two, 0 when it is not constant."""
        if super().proportion(a, b) == 0:
            return 0
        rough, fine = ([x / y for x, y in self._at(a, b, d) if y] for d in (DIGITS, 2 * DIGITS))
        if not fine or not fine[0] or len(rough) != len(fine):
            return 0
        constant = self._vanish(
            [(r - rough[0], abs(rough[0])) for r in rough],
            [(r - fine[0], abs(fine[0])) for r in fine],
        )
        if not constant or abs(mpmath.im(fine[0])) > abs(fine[0]) * SHRINKS:
            return 0
        return 1 if mpmath.re(fine[0]) > 0 else -1

    def _at(self, a: Expression, b: Expression, digits: int) -> list[tuple[Any, Any]]:
        with mpmath.workdps(digits):
            values = list(probe(a, b, self.num_points, BigArithmetic()))
        return [(x, y) for x, y in values if mpmath.isfinite(x) and mpmath.isfinite(y)]

    def _vanish(self, rough: list[tuple[Any, Any]], fine: list[tuple[Any, Any]]) -> bool:
        if not fine or len(rough) != len(fine):
            return False
        with mpmath.workdps(2 * DIGITS):
            limit = mpmath.mpf(10) ** (-2 * DIGITS + 20)
            return all(
                abs(d) <= limit * scale or abs(d) <= SHRINKS * abs(before)
                for (before, _), (d, scale) in zip(rough, fine, strict=True)
            )


class BigArithmetic:
    """mpmath at its working precision."""

    @property
    def pi(self) -> Any:
        """See `Arithmetic`."""
        return +mpmath.pi

    @property
    def e(self) -> Any:
        """See `Arithmetic`."""
        return +mpmath.e

    def number(self, numerator: int, denominator: int) -> Any:
        """See `Arithmetic`."""
        return mpmath.mpf(numerator) / denominator

    def imaginary(self) -> Any:
        """See `Arithmetic`."""
        return mpmath.mpc(0, 1)

    def power(self, base: Any, exponent: Any) -> Any:
        """See `Arithmetic`."""
        return mpmath.power(base, exponent)

    def real_root(self, value: Any, degree: int) -> Any | None:
        """See `Arithmetic`."""
        if mpmath.im(value) or mpmath.re(value) >= 0:
            return None
        return -mpmath.root(-mpmath.re(value), degree)

    def factorial(self, value: Any) -> Any:
        """See `Arithmetic`."""
        return mpmath.gamma(value + 1)

    def function(self, name: str, value: Any) -> Any:
        """See `Arithmetic`."""
        return FUNCTIONS[name](value)


FUNCTIONS = {
    "sin": mpmath.sin, "cos": mpmath.cos, "tan": mpmath.tan, "sinh": mpmath.sinh,
    "cosh": mpmath.cosh, "tanh": mpmath.tanh, "arcsin": mpmath.asin, "arccos": mpmath.acos,
    "arctan": mpmath.atan, "ln": mpmath.log, "exp": mpmath.exp,
}  # fmt: skip
