"""MBPP (full and sanitized), and MBPP+ as it is published in the same form."""

from __future__ import annotations

from verifiers.code_formats.prompts import show_asserts
from verifiers.code_formats.row import CodeFormat, CodeRow, Fields


def _read(fields: Fields) -> CodeRow:
    shown = fields.texts("test_list")
    imports = fields.texts("test_imports") if fields.row.get("test_imports") else []
    setup = "\n".join([*imports, fields.optional_text("test_setup_code") or ""]).strip()
    if fields.row.get("test"):  # MBPP+: everything in one program
        codes = [fields.text("test")]
    else:
        more = fields.texts("challenge_test_list") if fields.row.get("challenge_test_list") else []
        codes = [f"{setup}\n{code}".strip() for code in (*shown, *more)]
    question = fields.text("text" if fields.row.get("text") else "prompt")
    return CodeRow(
        id=fields.identity("task_id"),
        prompt=show_asserts(question, shown),
        reference={"tests": [{"kind": "assert", "code": code} for code in codes]}
        | ({"preamble": setup} if setup else {}),
        solution=_solution(fields),
    )


def _solution(fields: Fields) -> str | None:
    code = fields.optional_text("code")
    return None if code is None else code.replace("\r\n", "\n")


MBPP = CodeFormat(
    name="mbpp",
    columns=("task_id", "test_list"),
    bulky=("test", "code", "challenge_test_list", "test_setup_code", "test_imports"),
    read=_read,
)
