"""Test code of the EvalPlus sets: runs beside a reference solution, never beside the candidate.

The source of this module is put before the check of each problem, so it imports nothing but the
standard library.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

REL_TOL = 1e-7
FLOAT_TOL = 1e-6


def load_function(source: str, name: str) -> Callable[..., Any]:
    """A function that a trusted program defines."""
    space: dict[str, Any] = {"__name__": "reference"}
    exec(compile(source, "reference", "exec"), space)  # noqa: S102 - the data set's own solution
    return space[name]


def check_all(
    candidate: Callable[..., Any],
    reference: Callable[..., Any],
    inputs: Sequence[Sequence[Any]],
    right: Callable[[Sequence[Any], Any, Any], bool],
) -> None:
    """Compare a candidate with the reference on every input.

    Args:
        candidate: The function under test.
        reference: One that is known to be right.
        inputs: Arguments of each call.
        right: Says of arguments, value and expected value whether the value is right.

    Raises:
        AssertionError: It is wrong on one.
    """
    for arguments in inputs:
        expected = reference(*copy.deepcopy(arguments))
        value = candidate(*copy.deepcopy(arguments))
        assert right(arguments, value, expected), (
            f"{arguments!r:.200} gave {value!r:.200}, not {expected!r:.200}"
        )


def equal(value: Any, expected: Any, tolerance: float) -> bool:
    """Equal, or close where there is a tolerance, which floats always have."""
    if value == expected:
        return True
    if tolerance == 0 and _is_floats(expected):
        tolerance = FLOAT_TOL
    return tolerance != 0 and _close(value, expected, tolerance)


def equal_sets(value: Any, expected: Any) -> bool:
    """The same items, in any order and number."""
    return set(value) == set(expected)


def found(value: Any, expected: Any) -> bool:
    """A truth value, or anything but None where something is to be found."""
    return value == expected if isinstance(value, bool) else expected == (value is not None)


def is_root(coefficients: Sequence[float], value: Any, tolerance: float) -> bool:
    """Whether a polynomial, lowest power first, is nothing there."""
    total = sum(factor * value**power for power, factor in enumerate(coefficients))
    return abs(total) <= tolerance


def _is_floats(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return bool(value) and all(isinstance(one, float) for one in value)
    return isinstance(value, float)


def _close(value: Any, expected: Any, tolerance: float) -> bool:
    if isinstance(expected, (list, tuple)):
        return (
            type(value) is type(expected)
            and len(value) == len(expected)
            and all(_close(*pair, tolerance) for pair in zip(value, expected, strict=True))
        )
    if not isinstance(value, (int, float)) or not isinstance(expected, (int, float)):
        return bool(value == expected)
    if math.isnan(expected) or math.isnan(value):
        return False
    return value == expected or abs(value - expected) <= tolerance + REL_TOL * abs(expected)
