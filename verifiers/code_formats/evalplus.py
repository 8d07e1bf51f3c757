"""HumanEval+ and MBPP+ as EvalPlus publishes them: inputs, and a solution to compare with."""

from __future__ import annotations

import inspect
from typing import Any

from verifiers.code_formats import evalplus_check
from verifiers.code_formats.cases import program_limits
from verifiers.code_formats.literals import read_calls, restore_types
from verifiers.code_formats.row import CodeFormat, CodeRow, Fields, describe

# Functions whose value is right by another rule than equality. Their tasks say so in words.
_ANY_ORDER = (
    "Diff", "common_in_nested_lists", "extract_singly", "find_char_long", "find_dissimilar",
    "intersection_array", "larg_nnum", "similar_elements",
)  # fmt: skip
_FOUND_OR_NOT = ("check_str", "text_match_three", "text_starta_endb")
_ROOT = "find_zero"
# Functions of nested tuples, some nested deeper than in the task's own asserts.
_DEEP_TUPLES = ("extract_even", "remove_nested")

_SETUP = f"from math import inf, nan\n{inspect.getsource(evalplus_check)}".replace(
    "from __future__ import annotations\n", "", 1
)


def _read(fields: Fields) -> CodeRow:
    entry_point, prompt = fields.text("entry_point"), fields.text("prompt")
    solution = prompt + fields.text("canonical_solution")
    inputs = [*_read_inputs(fields, "base_input"), *_read_inputs(fields, "plus_input")]
    if fields.row.get("assertion"):  # MBPP+, whose functions take tuples, sets and complex numbers
        inputs = _restore(fields, inputs, entry_point)
    given = f"REFERENCE = load_function({solution!r}, {entry_point!r})\nINPUTS = {inputs!r}\n"
    return CodeRow(
        id=fields.identity("task_id"),
        prompt=prompt,
        reference={
            "tests": [
                {
                    "kind": "program",
                    "entry_point": entry_point,
                    "code": _write_check(entry_point, _tolerance(fields)),
                    "setup": f"{_SETUP}\n{given}",
                }
            ],
            "preamble": prompt,
            "limits": program_limits(entry_point),
        },
        solution=solution,
    )


def _read_inputs(fields: Fields, name: str) -> list[list[Any]]:
    inputs = fields.list(name)
    for index, arguments in enumerate(inputs):
        if not isinstance(arguments, list):
            what = f"must be a list of arguments, not {describe(arguments)}"
            raise fields.error(f"{name}[{index}]", what)
    return list(inputs)


def _restore(fields: Fields, inputs: list[list[Any]], entry_point: str) -> list[list[Any]]:
    try:
        calls = read_calls(fields.text("assertion"), entry_point)
    except SyntaxError as error:
        raise fields.error("assertion", f"does not compile: {error}") from error
    deeper = tuple if entry_point in _DEEP_TUPLES else list
    return [restore_types(arguments, calls, deeper=deeper) for arguments in inputs]


def _tolerance(fields: Fields) -> float:
    stated = fields.row.get("atol", 0)
    if isinstance(stated, bool) or not isinstance(stated, (int, float)) or not stated >= 0:
        what = f"must be a number and not negative, not {describe(stated)}"
        raise fields.error("atol", what)
    return float(stated)


def _write_check(entry_point: str, tolerance: float) -> str:
    """The test program of one problem, which finds the reference and the inputs in its setup."""
    if entry_point in _ANY_ORDER:
        right = "equal_sets(value, expected)"
    elif entry_point in _FOUND_OR_NOT:
        right = "found(value, expected)"
    elif entry_point == _ROOT:
        right = f"is_root(arguments[0], value, {tolerance or evalplus_check.FLOAT_TOL})"
    else:
        right = f"equal(value, expected, {tolerance})"
    return (
        "def check(candidate):\n"
        f"    check_all(candidate, REFERENCE, INPUTS, lambda arguments, value, expected: {right})\n"
    )


EVALPLUS = CodeFormat(
    name="evalplus",
    columns=("base_input", "plus_input", "entry_point", "canonical_solution"),
    bulky=("base_input", "plus_input", "canonical_solution", "contract", "assertion"),
    read=_read,
)
