"""KodCode: functions, tested by functions such as pytest collects."""

from __future__ import annotations

import ast

from sandbox.source import parse
from verifiers.code_formats.prompts import ask
from verifiers.code_formats.row import CodeFormat, CodeRow, Fields

_MODULE = "solution"  # as which the tests import the program


def _read(fields: Fields) -> CodeRow:
    code = fields.text("test")
    return CodeRow(
        id=fields.identity("question_id", "conversation_id", "id"),
        prompt=ask(fields.text("question"), entry_point=_first_import(fields, code)),
        reference={"tests": [{"kind": "assert", "code": code}]},
        solution=fields.optional_text("solution"),
    )


def _first_import(fields: Fields, code: str) -> str:
    """The first name that the tests take from the program."""
    try:
        module = parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise fields.error("test", f"does not compile: {error}") from error
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.module == _MODULE:
            return node.names[0].name
    raise fields.error("test", f"has no line `from {_MODULE} import ...`")


KODCODE = CodeFormat(
    name="kodcode",
    columns=("question", "test", "solution"),
    bulky=("test", "test_info"),
    read=_read,
)
