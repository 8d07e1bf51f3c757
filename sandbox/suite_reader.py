"""The JSON form of a problem's tests, which docs/sandbox.md describes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sandbox.asserts import read_asserts
from sandbox.checkers import Checker, CheckerTest, read_checker
from sandbox.compare import COMPARERS, Comparer
from sandbox.container.values import crosses
from sandbox.errors import BadTest
from sandbox.limits import Limits
from sandbox.programs import PROGRAM_MODULE, ProgramTest, bound_names, read_program
from sandbox.result import Call
from sandbox.suite import FunctionTest, StdioTest, Suite, Test

_SUITE_KEYS = (
    "tests", "kind", "entry_point", "compare", "checker", "limits", "preamble", "setup",
)  # fmt: skip
_COMPARE_KEYS = ("kind", "abs", "rel", "ignore_case")
_LIMIT_KEYS = ("cpu_s", "wall_s", "memory_mb", "stdout_kb")
_TEST_KEYS = {
    "stdio": ("kind", "input", "output", "compare"),
    "checker": ("kind", "input", "output", "checker"),
    "function": ("kind", "entry_point", "args", "kwargs", "expected", "any_of", "abs", "rel"),
    "assert": ("kind", "code", "entry_point", "setup"),
    "program": ("kind", "code", "entry_point", "names", "setup", "module", "copy_back"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Common:
    """What holds for every test that does not say otherwise."""

    kind: Any
    entry_point: str | None
    comparer: Comparer
    checker: Checker | None
    setup: str


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
    common = _common(whole)
    tests: list[Test] = []
    for index, row in enumerate(rows):
        tests.extend(_tests(row, f"tests[{index}]", common))
    return Suite(
        tests=tuple(tests),
        limits=_limits(whole.get("limits", {}), defaults),
        preamble=_optional_text(whole, "preamble", "preamble") or "",
    )


def _common(whole: Mapping[str, Any]) -> _Common:
    checker = _optional_text(whole, "checker", "checker")
    return _Common(
        kind=whole.get("kind"),
        entry_point=_optional_text(whole, "entry_point", "entry_point"),
        comparer=_comparer(whole.get("compare", "lines"), "compare"),
        checker=None if checker is None else read_checker(checker),
        setup=_optional_text(whole, "setup", "setup") or "",
    )


def _tests(row: Any, where: str, common: _Common) -> Sequence[Test]:
    kind = row.get("kind", common.kind) if isinstance(row, Mapping) else None
    if kind not in _TEST_KEYS:
        raise BadTest(f"{where}.kind must be one of {', '.join(_TEST_KEYS)}, not {kind!r}")
    _require_keys(row, _TEST_KEYS[kind], where)
    match kind:
        case "stdio":
            return [_stdio_test(row, where, common.comparer)]
        case "checker":
            return [_checker_test(row, where, common.checker)]
        case "function":
            return [_function_test(row, where, common.entry_point)]
        case "program":
            return [_program_test(row, where, common)]
        case _:
            return _assert_tests(row, where, common)


def _assert_tests(row: Mapping[str, Any], where: str, common: _Common) -> Sequence[Test]:
    """Calls and conditions where the code is made of these alone, else a test program."""
    code = _text(row, "code", f"{where}.code")
    function = _optional_text(row, "entry_point", f"{where}.entry_point") or common.entry_point
    setup = _optional_text(row, "setup", f"{where}.setup")
    setup = common.setup if setup is None else setup
    own = bound_names(setup, f"{where}.setup") - {function}
    try:
        return read_asserts(code, function=function, foreign=own)
    except BadTest:
        return [_program(f"{where}.code", code, function=function, setup=setup)]


def _program_test(row: Mapping[str, Any], where: str, common: _Common) -> ProgramTest:
    names, copy_back = row.get("names", []), row.get("copy_back", False)
    if not isinstance(names, (list, tuple)) or not all(isinstance(one, str) for one in names):
        raise BadTest(f"{where}.names must be a list of names that the program defines")
    if not isinstance(copy_back, bool):
        raise BadTest(f"{where}.copy_back must be true or false, not {copy_back!r:.40}")
    setup = _optional_text(row, "setup", f"{where}.setup")
    return _program(
        f"{where}.code",
        _text(row, "code", f"{where}.code"),
        function=_optional_text(row, "entry_point", f"{where}.entry_point") or common.entry_point,
        names=names,
        setup=common.setup if setup is None else setup,
        module=_optional_text(row, "module", f"{where}.module") or PROGRAM_MODULE,
        copy_back=copy_back,
    )


def _program(where: str, code: str, **choices: Any) -> ProgramTest:
    try:
        return read_program(code, **choices)
    except BadTest as error:
        raise BadTest(f"{where}: {error}") from error


def _checker_test(row: Mapping[str, Any], where: str, checker: Checker | None) -> CheckerTest:
    source = _optional_text(row, "checker", f"{where}.checker")
    if source is not None:
        checker = read_checker(source)
    if checker is None:
        raise BadTest(f"{where}.checker is missing, and the reference has no `checker` of its own")
    return CheckerTest(
        stdin=_text(row, "input", f"{where}.input"),
        expected=_optional_text(row, "output", f"{where}.output") or "",
        checker=checker,
    )


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
    expected = _expected_values(row, where)
    call = Call(function=name, arguments=tuple(arguments), keywords=dict(keywords))
    for value in (*arguments, *keywords.values(), *expected):
        if not crosses(value):
            raise BadTest(f"{where} holds a value of a type that cannot cross: {value!r:.80}")
    return FunctionTest(
        call=call,
        expected=expected,
        abs_tol=_number(row, "abs", 1e-6, where),
        rel_tol=_number(row, "rel", 1e-6, where),
    )


def _expected_values(row: Mapping[str, Any], where: str) -> tuple[Any, ...]:
    if ("expected" in row) == ("any_of" in row):
        raise BadTest(f"{where} needs one of expected and any_of")
    if "expected" in row:
        return (row["expected"],)
    values = row["any_of"]
    if not isinstance(values, (list, tuple)) or not values:
        raise BadTest(f"{where}.any_of must be a list of values that are all right")
    return tuple(values)


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
