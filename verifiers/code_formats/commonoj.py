"""SandboxFusion's CommonOJ: programs that read and print."""

from __future__ import annotations

from verifiers.code_formats.cases import Test, make_reference, stdio_test
from verifiers.code_formats.prompts import ask
from verifiers.code_formats.row import CodeFormat, CodeRow, Fields

_PYTHON = ("python", "python3", "Python")


def _read(fields: Fields) -> CodeRow:
    tests = [
        _read_test(fields.inside(f"test[{index}]", item))
        for index, item in enumerate(fields.list("test"))
    ]
    return CodeRow(
        id=fields.identity("id"),
        prompt=ask(fields.text("content"), entry_point=None),
        reference=make_reference(tests),
        solution=_solution(fields),
    )


def _read_test(test: Fields) -> Test:
    stdin = test.object("input").text("stdin")
    return stdio_test(stdin, test.object("output").text("stdout"))


def _solution(fields: Fields) -> str | None:
    """A program, or one for each language."""
    stated = fields.row.get("canonical_solution")
    if not stated or isinstance(stated, str):
        return stated or None
    by_language = fields.object("canonical_solution")
    return next((by_language.text(name) for name in _PYTHON if name in by_language.row), None)


COMMONOJ = CodeFormat(
    name="commonoj",
    columns=("content", "test"),
    bulky=("test", "canonical_solution"),
    read=_read,
)
