"""MBPP (full and sanitized), and MBPP+ as it is published in the same form."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Any

from sandbox.source import parse
from verifiers.code_formats.cases import program_limits
from verifiers.code_formats.prompts import show_asserts
from verifiers.code_formats.row import CodeFormat, CodeRow, Fields

# The data of an MBPP+ test program: up to 790 kB of literals, each on a line of its own.
_DATA = re.compile(r"^(?:inputs|results) = .*\n", re.MULTILINE)


def _read(fields: Fields) -> CodeRow:
    shown = fields.texts("test_list")
    imports = fields.texts("test_imports") if fields.row.get("test_imports") else []
    setup = "\n".join([*imports, fields.optional_text("test_setup_code") or ""]).strip()
    entry_point = _find_entry_point(fields, shown)
    more = fields.texts("challenge_test_list") if fields.row.get("challenge_test_list") else []
    tests: list[dict[str, Any]] = [{"kind": "assert", "code": code} for code in (*shown, *more)]
    if fields.row.get("test"):
        # Beside the shown asserts, without which some published test programs assert nothing.
        tests.append(_make_plus_test(fields, setup, entry_point))
    common: dict[str, Any] = {"entry_point": entry_point, "preamble": setup, "setup": setup}
    if fields.row.get("test"):
        common["limits"] = program_limits(entry_point)
    code = fields.optional_text("code")
    return CodeRow(
        id=fields.identity("task_id"),
        prompt=show_asserts(fields.text("text" if fields.row.get("text") else "prompt"), shown),
        reference={"tests": tests} | {key: value for key, value in common.items() if value},
        solution=None if code is None else code.replace("\r\n", "\n"),
    )


def _find_entry_point(fields: Fields, asserts: Sequence[str]) -> str | None:
    """The one function that the row's solution defines and its asserts call.

    None where there is no such, so that the asserts themselves have to show what they test.
    """
    if not fields.row.get("code"):
        return None
    program = _parse(fields, "code", fields.text("code"))
    defined = {one.name for one in program.body if isinstance(one, ast.FunctionDef)}
    called = {
        node.func.id
        for index, code in enumerate(asserts)
        for node in ast.walk(_parse(fields, f"test_list[{index}]", code))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    both = defined & called
    return both.pop() if len(both) == 1 else None


def _make_plus_test(fields: Fields, setup: str, entry_point: str | None) -> dict[str, Any]:
    """A test program, its data apart from its code, which is then quick to look through."""
    code = fields.text("test")
    data = "".join(_DATA.findall(code))
    names = {} if entry_point is None else {"names": [entry_point]}
    setup = f"from math import inf, nan\n{setup}\n{data}"
    return {"kind": "program", "code": _DATA.sub("", code), "setup": setup} | names


def _parse(fields: Fields, name: str, code: str) -> ast.Module:
    try:
        return parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise fields.error(name, f"does not compile: {error}") from error


MBPP = CodeFormat(
    name="mbpp",
    columns=("task_id", "test_list"),
    bulky=("test", "code", "challenge_test_list", "test_setup_code", "test_imports"),
    read=_read,
)
