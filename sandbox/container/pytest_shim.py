"""As much of pytest as test functions commonly use; the image holds no other package."""

from __future__ import annotations

import contextlib
import inspect
import re
import types
import unittest
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

NO_CASES: tuple[dict[str, Any], ...] = ({},)


class Raised:
    """What `raises` caught, as `ExceptionInfo` has it."""

    value: BaseException
    type: type[BaseException]

    def match(self, pattern: str) -> bool:
        """Assert that the exception's text matches."""
        assert re.search(pattern, str(self.value)), f"{self.value} does not match {pattern}"
        return True


@contextlib.contextmanager
def _raises_here(expected: Any, match: str | None) -> Iterator[Raised]:
    info = Raised()
    try:
        yield info
    except expected as error:
        info.value, info.type = error, type(error)
        if match is not None:
            info.match(match)
    else:
        fail(f"did not raise {expected}")


def raises(expected: Any, *call: Any, match: str | None = None, **keywords: Any) -> Any:
    """Expect an exception in a `with` block, or of a call."""
    if not call:
        return _raises_here(expected, match)
    with _raises_here(expected, match) as info:
        call[0](*call[1:], **keywords)
    return info


class approx:  # noqa: N801 (its name there)
    """Equal to numbers, and sequences and dicts of numbers, that are near enough."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        expected: Any,
        rel: float | None = None,
        abs: float | None = None,  # noqa: A002
    ) -> None:
        self.expected = expected
        self.abs_tol = abs
        self.rel_tol = rel

    def __eq__(self, other: object) -> bool:
        return self._same(other, self.expected)

    def __repr__(self) -> str:
        return f"approx({self.expected!r})"

    def _same(self, ours: Any, theirs: Any) -> bool:
        if hasattr(theirs, "tolist") and hasattr(ours, "tolist"):
            return self._same(ours.tolist(), theirs.tolist())
        if isinstance(theirs, dict):
            keys = isinstance(ours, dict) and ours.keys() == theirs.keys()
            return keys and all(self._same(ours[key], theirs[key]) for key in theirs)
        if isinstance(theirs, (list, tuple)):
            if not isinstance(ours, (list, tuple)) or len(ours) != len(theirs):
                return False
            return all(map(self._same, ours, theirs))
        return bool(ours == theirs) or self._near(ours, theirs)

    def _near(self, ours: Any, theirs: Any) -> bool:
        if not isinstance(ours, (int, float, complex)):
            return False
        # As documented: 1e-6 of the expected value, or 1e-12; `abs` alone is the only measure.
        absolute = 1e-12 if self.abs_tol is None else self.abs_tol
        relative = 1e-6 if self.rel_tol is None and self.abs_tol is None else self.rel_tol or 0.0
        return abs(ours - theirs) <= max(absolute, relative * abs(theirs))


class _Marks:
    """`pytest.mark`: cases are kept, `skip` is heeded, other marks say nothing about right."""

    def __getattr__(self, name: str) -> Any:
        if name == "skip":
            return lambda *_reason, **_why: unittest.skip("marked")
        return _ignored

    def parametrize(
        self, names: str | list[str] | tuple[str, ...], rows: Any, **_ids: Any
    ) -> Callable[[Any], Any]:
        """Run the function once for each row."""
        keys = [one.strip() for one in names.split(",")] if isinstance(names, str) else list(names)

        def mark(function: Any) -> Any:
            cases = [_case(keys, row) for row in rows]
            known = getattr(function, "test_cases", NO_CASES)
            function.test_cases = tuple({**one, **other} for one in known for other in cases)
            return function

        return mark


def _ignored(*arguments: Any, **_options: Any) -> Any:
    if len(arguments) == 1 and inspect.isroutine(arguments[0]):
        return arguments[0]
    return lambda function: function


def _case(keys: list[str], row: Any) -> dict[str, Any]:
    values = row.values if isinstance(row, Param) else (row,) if len(keys) == 1 else tuple(row)
    return dict(zip(keys, values, strict=True))


class Param:
    """A row of `parametrize`."""

    def __init__(self, *values: Any, **_options: Any) -> None:
        self.values = values


def fixture(*function: Any, **_options: Any) -> Any:
    """Mark a function whose value tests get by its name."""

    def mark(one: Any) -> Any:
        one.is_fixture = True
        return one

    return mark(function[0]) if function else mark


def skip(reason: str = "", **_options: Any) -> NoReturn:
    """Leave the test out."""
    raise unittest.SkipTest(reason)


def fail(reason: str = "", **_options: Any) -> NoReturn:
    """Fail the test."""
    raise AssertionError(reason)


def module() -> types.ModuleType:
    """What `import pytest` gives to test code."""
    shim = types.ModuleType("pytest")
    shim.__dict__.update(
        raises=raises, approx=approx, mark=_Marks(), param=Param, fixture=fixture, skip=skip,
        fail=fail,
    )  # fmt: skip
    return shim
