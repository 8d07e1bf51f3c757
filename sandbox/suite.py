"""The tests of one problem, and their form in JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from sandbox.asserts import AssertTest, read_asserts
from sandbox.compare import COMPARERS, Comparer, same_value
from sandbox.container.values import crosses
from sandbox.errors import BadTest
from sandbox.limits import Limits
from sandbox.result import Call

_SUITE_KEYS = ("tests", "kind", "entry_point", "compare", "limits", "preamble")
_COMPARE_KEYS = ("kind", "abs", "rel", "ignore_case")
_LIMIT_KEYS = ("cpu_s", "wall_s", "memory_mb", "stdout_kb")
_TEST_KEYS = {
    "stdio": ("kind", "input", "output", "compare"),
    "function": ("kind", "entry_point", "args", "kwargs", "expected", "abs", "rel"),
    "assert": ("kind", "code", "entry_point"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StdioTest:
    """A run of the whole program.

    Attributes:
        stdin: What it reads.
        expected: What it must print; any one of these.
        comparer: When a text counts as one of them.
    """

    stdin: str
    expected: tuple[str, ...]
    comparer: Comparer = field(default_factory=Comparer)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTest:
    """A call of one function that the program defines.

    Attributes:
        call: The call.
        expected: What it must return, by `same_value`.
        abs_tol: Absolute tolerance where a `float` is expected.
        rel_tol: Relative tolerance there.
    """

    call: Call
    expected: Any
    abs_tol: float = 1e-6
    rel_tol: float = 1e-6

    @property
    def calls(self) -> tuple[Call, ...]:
        """The one call."""
        return (self.call,)

    def holds(self, values: Sequence[Any]) -> bool:
        """Whether the call returned what was expected."""
        return same_value(values[0], self.expected, abs_tol=self.abs_tol, rel_tol=self.rel_tol)


CallTest = FunctionTest | AssertTest
Test = StdioTest | FunctionTest | AssertTest


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """All tests of a problem.

    Attributes:
        tests: In the order in which they are reported.
        limits: Of each test.
        preamble: Source that goes before every program, such as imports that the prompt promised.
    """

    tests: tuple[Test, ...]
    limits: Limits
    preamble: str = ""


def read_suite(reference: Any, defaults: Limits) -> Suite:
    """Read the tests of a problem from their JSON form, which docs/sandbox.md describes.

    Args:
        reference: A list of tests, or an object with `tests` and what they have in common.
        defaults: Limits where the reference names none.

    Raises:
        BadTest: Something is missing, unknown or of the wrong type; the message names it by its
            path.
    """
    whole = {"tests": reference} if isinstance(reference, (list, tuple)) else reference
    _require_keys(whole, _SUITE_KEYS, "the reference")
    rows = whole.get("tests")
    if not isinstance(rows, (list, tuple)) or not rows:
        raise BadTest("tests must be a list with at least one test")
    comparer = _comparer(whole.get("compare", "lines"), "compare")
    common = (whole.get("kind"), _optional_text(whole, "entry_point", "entry_point"))
    tests: list[Test] = []
    for index, row in enumerate(rows):
        tests.extend(_tests(row, f"tests[{index}]", comparer, *common))
    return Suite(
        tests=tuple(tests),
        limits=_limits(whole.get("limits", {}), defaults),
        preamble=_optional_text(whole, "preamble", "preamble") or "",
    )


def _tests(
    row: Any, where: str, comparer: Comparer, kind: Any, function: str | None
) -> Sequence[Test]:
    kind = row.get("kind", kind) if isinstance(row, Mapping) else None
    if kind not in _TEST_KEYS:
        raise BadTest(f"{where}.kind must be one of {', '.join(_TEST_KEYS)}, not {kind!r}")
    _require_keys(row, _TEST_KEYS[kind], where)
    match kind:
        case "stdio":
            return [_stdio_test(row, where, comparer)]
        case "function":
            return [_function_test(row, where, function)]
        case _:
            own = _optional_text(row, "entry_point", f"{where}.entry_point") or function
            try:
                return read_asserts(_text(row, "code", f"{where}.code"), function=own)
            except BadTest as error:
                raise BadTest(f"{where}.{error}") from error


def _stdio_test(row: Mapping[str, Any], where: str, comparer: Comparer) -> StdioTest:
    output = row.get("output")
    expected = (output,) if isinstance(output, str) else output
    if not isinstance(expected, (list, tuple)) or not expected:
        raise BadTest(f"{where}.output must be a text, or a list of texts that are all right")
    if not all(isinstance(one, str) for one in expected):
        raise BadTest(f"{where}.output must hold texts only")
    if "compare" in row:
        comparer = _comparer(row["compare"], f"{where}.compare")
    stdin = _text(row, "input", f"{where}.input")
    return StdioTest(stdin=stdin, expected=tuple(expected), comparer=comparer)


def _function_test(row: Mapping[str, Any], where: str, function: str | None) -> FunctionTest:
    name = _optional_text(row, "entry_point", f"{where}.entry_point") or function
    if name is None:
        raise BadTest(
            f"{where}.entry_point is missing, and the reference has no `entry_point` of its own"
        )
    arguments, keywords = row.get("args", []), row.get("kwargs", {})
    if not isinstance(arguments, (list, tuple)):
        raise BadTest(f"{where}.args must be a list of arguments, not {arguments!r:.40}")
    if not isinstance(keywords, Mapping) or not all(isinstance(key, str) for key in keywords):
        raise BadTest(f"{where}.kwargs must be an object")
    if "expected" not in row:
        raise BadTest(f"{where}.expected is missing")
    call = Call(function=name, arguments=tuple(arguments), keywords=dict(keywords))
    for value in (*arguments, *keywords.values(), row["expected"]):
        if not crosses(value):
            raise BadTest(f"{where} holds a value of a type that cannot cross: {value!r:.80}")
    return FunctionTest(
        call=call,
        expected=row["expected"],
        abs_tol=_number(row, "abs", 1e-6, where),
        rel_tol=_number(row, "rel", 1e-6, where),
    )


def _comparer(value: Any, where: str) -> Comparer:
    fields = {"kind": value} if isinstance(value, str) else value
    _require_keys(fields, _COMPARE_KEYS, where)
    kind = fields.get("kind")
    if kind not in COMPARERS:
        raise BadTest(f"{where} must be one of {', '.join(COMPARERS)}, not {kind!r}")
    ignore_case = fields.get("ignore_case", False)
    if not isinstance(ignore_case, bool):
        raise BadTest(f"{where}.ignore_case must be true or false, not {ignore_case!r:.40}")
    return Comparer(
        kind=kind,
        abs_tol=_number(fields, "abs", 1e-6, where),
        rel_tol=_number(fields, "rel", 1e-6, where),
        ignore_case=ignore_case,
    )


def _limits(value: Any, defaults: Limits) -> Limits:
    _require_keys(value, _LIMIT_KEYS, "limits")
    for key in value:
        _number(value, key, 0.0, "limits")
    changes = dict(value)
    if "cpu_s" in changes and "wall_s" not in changes:
        changes["wall_s"] = None
    try:
        return dataclasses.replace(defaults, **changes)
    except ValueError as error:
        raise BadTest(str(error)) from error


def _require_keys(value: Any, known: Sequence[str], where: str) -> None:
    if not isinstance(value, Mapping):
        raise BadTest(f"{where} must be an object, not {value!r:.40}")
    unknown = [str(key) for key in cast("Mapping[Any, Any]", value) if key not in known]
    if unknown:
        raise BadTest(f"{where} has an unknown key {unknown[0]}; known are {', '.join(known)}")


def _text(row: Mapping[str, Any], key: str, where: str) -> str:
    value = row.get(key)
    if not isinstance(value, str):
        raise BadTest(f"{where} must be a text, not {value!r:.40}")
    return value


def _optional_text(row: Mapping[str, Any], key: str, where: str) -> str | None:
    return None if row.get(key) is None else _text(row, key, where)


def _number(row: Mapping[str, Any], key: str, default: float, where: str) -> float:
    value = row.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise BadTest(f"{where}.{key} must be a number and not negative, not {value!r:.40}")
    return value
