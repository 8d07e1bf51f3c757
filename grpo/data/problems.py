"""From rows to problems: which column is the prompt, which the answer, which verifier judges."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from grpo.config.schema import DataConfig
from grpo.data.rows import Row, read_rows
from verifiers.code_formats.read import AUTO, read_code_row
from verifiers.errors import UserError
from verifiers.problem import Problem

# A column's name in braces; after a letter, as in `\\boxed{x}`, braces are LaTeX.
_FIELD = re.compile(r"(?<![A-Za-z])\{([A-Za-z_]\w*)\}")
_CODE_VERIFIER = "code"


def load_problems(data: DataConfig) -> list[Problem]:
    """Read a data set's problems.

    Args:
        data: The set.

    Raises:
        UserError: A row is malformed; the message names the place and the column.
    """
    problems = [
        _make_problem(data, place, _in_our_columns(data, place, row), number)
        for number, (place, row) in enumerate(read_rows(data))
    ]
    _check_unique(problems)
    return problems


def _in_our_columns(data: DataConfig, place: str, row: Row) -> Row:
    """A row of code problems as they are published, read; any other row as it is."""
    if data.format is None:
        has_answer = row.get(data.columns.answer) is not None
        if has_answer or data.verifier != _CODE_VERIFIER:
            return row
    read = read_code_row(
        row, place, format=data.format or AUTO, time_limit_factor=data.time_limit_factor
    )
    return {data.columns.verifier: data.verifier or _CODE_VERIFIER} | read


def _make_problem(data: DataConfig, place: str, row: Row, number: int) -> Problem:
    columns = data.columns
    verifier = row.get(columns.verifier) or data.verifier
    if not verifier or not isinstance(verifier, str):
        raise UserError(
            f"{place} names no verifier: the row has no text in column {columns.verifier!r}, and "
            f"the data set "
            f"{data.label!r} sets none. Add `verifier: math` (or another) to it."
        )
    mapped = {columns.prompt, columns.answer, columns.verifier, columns.id}
    return Problem(
        id=f"{data.label}/{row.get(columns.id, number)}",
        prompt=_make_prompt(data, place, row),
        verifier=verifier,
        reference=_make_reference(data, place, row),
        source=place,
        columns={name: value for name, value in row.items() if name not in mapped},
    )


def _make_prompt(data: DataConfig, place: str, row: Row) -> str | tuple[dict[str, str], ...]:
    if data.prompt_template is not None:
        text: Any = _fill_template(data, data.prompt_template, place, row)
    else:
        text = _column(row, data.columns.prompt, place, "prompt")
    if isinstance(text, str):
        if not text.strip():
            raise UserError(f"{place} has an empty prompt in column {data.columns.prompt!r}.")
        if data.system_prompt is None:
            return text
        return (
            {"role": "system", "content": data.system_prompt},
            {"role": "user", "content": text},
        )
    return _check_messages(text, place, data.columns.prompt)


def _fill_template(data: DataConfig, template: str, place: str, row: Row) -> str:
    def value_of(field: re.Match[str]) -> str:
        if field[1] == data.columns.answer:
            raise UserError(
                f"prompt_template of {data.label!r} has the field {{{field[1]}}}, the column of "
                "the reference answer: every prompt would give its answer away. Remove the field."
            )
        return str(_column(row, field[1], place, "prompt_template"))

    # One pass, and no str.format: text of a row is never read as a template.
    return _FIELD.sub(value_of, template)


def _column(row: Row, name: str, place: str, option: str) -> Any:
    if row.get(name) is None:
        present = ", ".join(sorted(row)) or "none"
        raise UserError(
            f"{place} has no column {name!r}, which {option} needs. Its columns are: {present}."
        )
    return row[name]


def _check_messages(value: Any, place: str, column: str) -> tuple[dict[str, str], ...]:
    problem = None
    if not isinstance(value, Sequence) or not value:
        problem = f"is {type(value).__name__}"
    elif not all(
        isinstance(m, dict) and isinstance(m.get("role"), str) and isinstance(m.get("content"), str)
        for m in value
    ):
        problem = "has a message without text in `role` and `content`"
    elif value[-1]["role"] == "assistant":
        problem = "ends with the assistant's turn, so there is nothing to answer"
    if problem:
        raise UserError(
            f"{place}: column {column!r} must be text or a list of chat messages, but {problem}."
        )
    return tuple({"role": m["role"], "content": m["content"]} for m in value)


def _make_reference(data: DataConfig, place: str, row: Row) -> Any:
    if "answer" not in data.columns.model_fields_set and data.answer_after is None:
        return row.get(data.columns.answer)  # a verifier that needs an answer says so in `prepare`
    answer = _column(row, data.columns.answer, place, "columns.answer")
    if data.answer_after is None:
        return answer
    _, found, tail = str(answer).rpartition(data.answer_after)
    if not found or not tail.strip():
        raise UserError(
            f"{place}: nothing follows {data.answer_after!r} (answer_after) in column "
            f"{data.columns.answer!r}."
        )
    return tail.strip()


def _check_unique(problems: Sequence[Problem]) -> None:
    seen: dict[str, str] = {}
    for problem in problems:
        if problem.id in seen:
            raise UserError(
                f"{problem.source} has the id {problem.id!r}, which {seen[problem.id]} has "
                f"already; ids must differ."
            )
        seen[problem.id] = problem.source
