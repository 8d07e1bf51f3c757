"""Tests given as data, in the two shapes that most sets of contest problems share.

One is an object of parallel lists, `inputs` and `outputs`, with a `fn_name` where a function is
called; the other is a list of objects, each with its `input` and `output`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from verifiers.code_formats.row import Fields, describe

Test = dict[str, Any]

STDIN_TYPES = ("stdin", "stdin_stdout")
FUNCTION_TYPES = ("functional", "function_call")

# CPU seconds of a test program that calls the tested function a hundred times and more.
_PROGRAM_CPU_S = 30.0
# What the published solution itself holds for the largest inputs: a list of ten million tuples.
_PROGRAM_MEMORY_MB = {"combinations_colors": 2048}

# What sites that ask for a function have imported before the submission starts.
PREAMBLE = """\
import bisect, collections, copy, datetime, functools, heapq, itertools, math, operator, random
import re, string, sys
from bisect import bisect, bisect_left, bisect_right, insort
from collections import Counter, OrderedDict, defaultdict, deque
from copy import copy, deepcopy
from functools import cache, cmp_to_key, lru_cache, reduce
from heapq import heapify, heappop, heappush, heappushpop, heapreplace, nlargest, nsmallest
from itertools import accumulate, chain, combinations, count, cycle, groupby, permutations, product
from math import ceil, comb, factorial, floor, gcd, inf, isqrt, log, log2, sqrt
from typing import Any, Dict, Iterable, Iterator, List, Optional, Set, Tuple, Union
"""


def make_reference(tests: Sequence[Test], **more: Any) -> dict[str, Any]:
    """The reference for these tests, with the imports that function tests rely on."""
    called = any(test["kind"] == "function" for test in tests)
    return {"tests": list(tests)} | ({"preamble": PREAMBLE} if called else {}) | more


def find_entry_point(tests: Sequence[Test]) -> str | None:
    """The function that the tests call; None where they run the whole program."""
    return next((test["entry_point"] for test in tests if "entry_point" in test), None)


def read_tests(fields: Fields, name: str, entry_point: str | None = None) -> list[Test]:
    """Read a field that holds tests in either shape, or the JSON of them.

    Args:
        fields: The row, or the object that the field is in.
        name: The field.
        entry_point: The function that tests call which name none.

    Raises:
        UserError: The field is in neither shape.
    """
    payload = fields.parsed(name)
    if isinstance(payload, Mapping):
        return _read_lists(fields.inside(name, payload), entry_point)
    if not isinstance(payload, (list, tuple)):
        raise fields.error(name, f"must be an object or a list, not {describe(payload)}")
    tests: list[Test] = []
    for index, item in enumerate(payload):
        place = f"{name}[{index}]"
        if isinstance(item, str):
            tests.append({"kind": "assert", "code": item})
        else:
            tests.append(_read_case(fields.inside(place, item), entry_point))
    return tests


def _read_lists(fields: Fields, entry_point: str | None) -> list[Test]:
    """Tests of `{"inputs": [...], "outputs": [...], "fn_name": ...}`."""
    if fields.row.get("assert_case"):
        return [{"kind": "assert", "code": code} for code in fields.texts("assert_case")]
    function = fields.optional_text("fn_name") or entry_point
    tests: list[Test] = []
    for index, (given, expected) in enumerate(fields.pairs("inputs", "outputs")):
        if function is not None:
            arguments = _arguments(fields, f"inputs[{index}]", given)
            tests.append(function_test(function, arguments, expected))
        else:
            stdin = _as_text(fields, f"inputs[{index}]", given)
            tests.append(stdio_test(stdin, _as_text(fields, f"outputs[{index}]", expected)))
    return tests


def _read_case(fields: Fields, entry_point: str | None) -> Test:
    """One test of a list of objects."""
    kind = fields.row.get("testtype") or fields.row.get("type")
    function = _named_function(fields) or entry_point
    if kind is not None and kind not in (*STDIN_TYPES, *FUNCTION_TYPES):
        known = ", ".join((*STDIN_TYPES, *FUNCTION_TYPES))
        raise fields.error(
            "testtype" if "testtype" in fields.row else "type", f"must be one of {known}"
        )
    if "output" not in fields.row:
        raise fields.error("output", "is missing")
    given, expected = fields.value("input"), fields.row["output"]
    if kind in STDIN_TYPES or (kind is None and function is None):
        stdin = _as_text(fields, "input", given)
        return stdio_test(stdin, _as_text(fields, "output", expected))
    if function is None:
        raise fields.error(
            "fn_name", "is missing, and the row names no function that its tests call"
        )
    if isinstance(given, str):  # one JSON value a line
        arguments = [fields.parse("input", line) for line in given.split("\n") if line.strip()]
        return function_test(function, arguments, fields.parse("output", fields.text("output")))
    return function_test(function, _arguments(fields, "input", given), expected)


def _named_function(fields: Fields) -> str | None:
    if fields.row.get("fn_name"):
        return fields.text("fn_name")
    if isinstance(fields.row.get("metadata"), Mapping):
        return fields.object("metadata").optional_text("func_name")
    return None


def stdio_test(stdin: str, *outputs: str) -> Test:
    """A run of the whole program; any of the outputs is right."""
    return {
        "kind": "stdio",
        "input": stdin,
        "output": outputs[0] if len(outputs) == 1 else list(outputs),
    }


def function_test(entry_point: str, arguments: Sequence[Any], expected: Any) -> Test:
    """A call of a function.

    Sets differ in whether what is expected stands alone or in a list of its own, and so does the
    same set from row to row: of a list with one item, the item is right too. Objects came through
    JSON, which has only texts for keys.
    """
    test: Test = {
        "kind": "function",
        "entry_point": entry_point,
        "args": [restore_keys(one) for one in arguments],
    }
    expected = restore_keys(expected)
    if isinstance(expected, list) and len(expected) == 1:
        return test | {"any_of": [expected, restore_keys(expected[0])]}
    return test | {"expected": expected}


def program_limits(entry_point: str | None) -> dict[str, Any]:
    """Limits that a test program of HumanEval+ or MBPP+ needs for a function that is right."""
    memory_mb = _PROGRAM_MEMORY_MB.get(entry_point or "")
    return {"cpu_s": _PROGRAM_CPU_S} | ({} if memory_mb is None else {"memory_mb": memory_mb})


def restore_keys(value: Any) -> Any:
    """An object with whole numbers for keys, where its keys are texts of such.

    Example:
        >>> restore_keys({"1": "a"})
        {1: 'a'}
    """
    if not isinstance(value, dict) or not value:
        return value
    try:
        return {int(key): one for key, one in value.items()}
    except (TypeError, ValueError):
        return value


def _arguments(fields: Fields, name: str, given: Any) -> Sequence[Any]:
    if isinstance(given, str):
        given = fields.parse(name, given)
    if not isinstance(given, (list, tuple)):
        raise fields.error(name, f"must be a list of arguments, not {describe(given)}")
    return given


def _as_text(fields: Fields, name: str, value: Any) -> str:
    """What a program reads or prints: a text, or its lines."""
    if isinstance(value, str):
        return value
    lines = value if isinstance(value, (list, tuple)) else None
    if lines is not None and all(isinstance(line, (str, int, float)) for line in lines):
        return "\n".join(map(str, lines))
    if isinstance(value, (int, float)):
        return json.dumps(value)
    raise fields.error(name, f"must be a text or a list of lines, not {describe(value)}")
