"""HumanEval, and HumanEval+ as it is published with tests of the same form."""

from __future__ import annotations

from verifiers.code_formats.row import CodeFormat, CodeRow, Fields


def _read(fields: Fields) -> CodeRow:
    prompt, entry_point = fields.text("prompt"), fields.text("entry_point")
    body = fields.optional_text("canonical_solution")
    return CodeRow(
        id=fields.identity("task_id"),
        prompt=prompt,
        reference={
            "entry_point": entry_point,
            "tests": [{"kind": "assert", "code": fields.text("test")}],
            # What a completion may build on: imports, helper functions, the opened function.
            "preamble": prompt,
            # Some tests call those helper functions too.
            "setup": prompt,
        },
        solution=None if body is None else prompt + body,
    )


HUMANEVAL = CodeFormat(
    name="humaneval",
    columns=("task_id", "prompt", "entry_point", "test"),
    bulky=("test", "canonical_solution"),
    read=_read,
)
