"""The slow half of a comparison, run in a worker process: equality to a hundred digits."""

from __future__ import annotations

from typing import Any

import mpmath

from verifiers.maths.answers import Answer
from verifiers.maths.compare import compare
from verifiers.maths.equality import QuickEquality, probe
from verifiers.maths.exact import TooCostly
from verifiers.maths.expressions import Expression, find_symbols
from verifiers.maths.finding import Finding
from verifiers.maths.options import MathOptions

PRECISIONS = (60, 120)
# The second precision shrinks the difference of equals by this much; that of unequals stays.
SHRINKS = mpmath.mpf(10) ** -40
NEGLIGIBLE = mpmath.mpf(10) ** -100

_Difference = tuple[Any, Any]  # of two values, with the size of the larger


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
        rough, fine = (self._differences(a, b, digits) for digits in PRECISIONS)
        # One point proves nothing about a function.
        return len(fine) > bool(find_symbols(a)) and _vanish(rough, fine)

    def proportion(self, a: Expression, b: Expression) -> int:
        """Sign of the constant ratio of the two, 0 when it is not constant."""
        if super().proportion(a, b) == 0:
            return 0
        with mpmath.workdps(PRECISIONS[1]):
            ratios = _ratios(self._values_of(a, b))
            if len(ratios) < 2 or any(
                abs(ratio - ratios[0]) > SHRINKS * abs(ratios[0]) for ratio in ratios
            ):
                return 0
            if abs(mpmath.im(ratios[0])) > abs(ratios[0]) * SHRINKS:
                return 0
            return 1 if mpmath.re(ratios[0]) > 0 else -1

    def _differences(self, a: Expression, b: Expression, digits: int) -> list[_Difference]:
        with mpmath.workdps(digits):
            return [(x - y, max(abs(x), abs(y))) for x, y in self._values_of(a, b)]

    def _values_of(self, a: Expression, b: Expression) -> list[tuple[Any, Any]]:
        values = probe(a, b, self.num_points, BigArithmetic())
        return [(x, y) for x, y in values if mpmath.isfinite(x) and mpmath.isfinite(y)]


def _ratios(values: list[tuple[Any, Any]]) -> list[Any]:
    """Ratios of both values; none at all where just one of them vanishes."""
    sizes = [max((abs(v) for v in side), default=0) for side in zip(*values, strict=True)]
    ratios = []
    for x, y in values:
        vanish = abs(x) <= SHRINKS * sizes[0], abs(y) <= SHRINKS * sizes[1]
        if any(vanish) and not all(vanish):
            return []
        if not any(vanish):
            ratios.append(x / y)
    return ratios


def _vanish(rough: list[_Difference], fine: list[_Difference]) -> bool:
    """Whether all differences are zero, or become so as the precision grows."""
    if not fine or len(rough) != len(fine):
        return False
    return all(
        abs(difference) <= NEGLIGIBLE * scale or abs(difference) <= SHRINKS * abs(before)
        for (before, _), (difference, scale) in zip(rough, fine, strict=True)
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
    "arctan": mpmath.atan, "ln": mpmath.log, "exp": mpmath.exp, "floor": mpmath.floor,
    "ceil": mpmath.ceil,
}  # fmt: skip
