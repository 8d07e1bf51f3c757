"""LiveCodeBench: public tests in JSON, hidden ones also packed."""

from __future__ import annotations

from dataclasses import replace

from verifiers.code_formats.cases import Test, find_entry_point, make_reference, read_tests
from verifiers.code_formats.packed import PackedTextError, unpack_text
from verifiers.code_formats.prompts import ask
from verifiers.code_formats.row import CodeFormat, CodeRow, Fields


def _read(fields: Fields) -> CodeRow:
    function = (
        fields.object("metadata").optional_text("func_name") if fields.row.get("metadata") else None
    )
    tests = read_tests(fields, "public_test_cases", function)
    if fields.row.get("private_test_cases"):
        tests += _read_private(fields, function)
    return CodeRow(
        id=fields.identity("question_id"),
        prompt=ask(
            fields.text("question_content"),
            entry_point=find_entry_point(tests),
            starter_code=fields.optional_text("starter_code"),
        ),
        reference=make_reference(tests),
    )


def _read_private(fields: Fields, function: str | None) -> list[Test]:
    name = "private_test_cases"
    value = fields.value(name)
    if isinstance(value, str) and not value.lstrip().startswith(("[", "{")):
        try:
            value = unpack_text(value)
        except PackedTextError as error:
            raise fields.error(name, f"is neither JSON nor a packed text: {error}") from error
    return read_tests(replace(fields, row={name: value}), name, function)


LIVECODEBENCH = CodeFormat(
    name="livecodebench",
    columns=("question_content", "public_test_cases"),
    bulky=("public_test_cases", "private_test_cases"),
    read=_read,
)
