"""From rows to problems: which column is the prompt, which the answer, which verifier judges."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from grpo.config.data import ColumnsConfig, DataConfig
from grpo.data.few_shot import Shot, load_shots, prepend_shots
from grpo.data.files import Row
from grpo.data.rows import read_rows
from grpo.data.shapes import PLAIN, find_shape, shape_names, to_plain
from verifiers.code_formats.read import AUTO, read_code_row
from verifiers.errors import UserError
from verifiers.problem import Problem

_OUR_COLUMNS = ColumnsConfig()
# A column's name in braces; after a letter, as in `\\boxed{x}`, braces are LaTeX.
_FIELD = re.compile(r"(?<![A-Za-z])\{([A-Za-z_]\w*)\}")
_CODE_VERIFIER = "code"
_CODE_ABILITIES = frozenset({"code", "coding"})  # what verl writes beside a row with tests


def load_problems(data: DataConfig) -> list[Problem]:
    """Read a data set's problems.

    Args:
        data: The set.

    Raises:
        UserError: A row is malformed; the message names the place and the column.
    """
    shots = load_shots(
        data, lambda place, row: _make_question(data, place, _to_our_columns(data, place, row))
    )
    problems = [
        _make_problem(data, place, _to_our_columns(data, place, row), number, shots)
        for number, (place, row) in enumerate(read_rows(data))
    ]
    _check_unique(problems)
    return problems


def _to_our_columns(data: DataConfig, place: str, row: Row) -> Row:
    """The row as it is where the columns are said, and otherwise read in the shape it shows."""
    if _is_published_code(data, row):
        read = read_code_row(
            row, place, format=data.format or AUTO, time_limit_factor=data.time_limit_factor
        )
        return {data.columns.verifier: data.verifier or _CODE_VERIFIER} | read
    said = data.columns != _OUR_COLUMNS or data.prompt_template is not None
    if data.format is None and said:
        return row
    shape = find_shape(row, data.format, place)
    return row if shape is None else to_plain(row, shape, data.verifier)


def _is_published_code(data: DataConfig, row: Row) -> bool:
    """Whether to read the row as a code problem in a published shape."""
    says_code = data.verifier == _CODE_VERIFIER or row.get("ability") in _CODE_ABILITIES
    if data.format is None:
        return says_code and row.get(data.columns.answer) is None
    if data.format == PLAIN:
        return False
    return says_code or data.format not in shape_names()


def _make_problem(
    data: DataConfig, place: str, row: Row, number: int, shots: Sequence[Shot]
) -> Problem:
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
        prompt=_make_prompt(data, place, row, shots),
        verifier=verifier,
        reference=_join_list(_make_reference(data, place, row), verifier),
        source=place,
        columns={name: value for name, value in row.items() if name not in mapped},
    )


def _make_prompt(
    data: DataConfig, place: str, row: Row, shots: Sequence[Shot]
) -> str | tuple[dict[str, str], ...]:
    prompt = _make_question(data, place, row)
    if data.system_prompt is not None:
        messages = ({"role": "user", "content": prompt},) if isinstance(prompt, str) else prompt
        if messages[0]["role"] == "system":
            raise UserError(
                f"{place} has a system message of its own, and system_prompt of {data.label!r} is "
                "another one. Set system_prompt to null, or remove the row's."
            )
        prompt = ({"role": "system", "content": data.system_prompt}, *messages)
    return prepend_shots(prompt, shots)


def _make_question(data: DataConfig, place: str, row: Row) -> str | tuple[dict[str, str], ...]:
    """The row's own part of the prompt."""
    if data.prompt_template is not None:
        text: Any = _fill_template(data, data.prompt_template, place, row)
    else:
        text = _column(row, data.columns.prompt, place, "columns.prompt")
    if not isinstance(text, str):
        return _check_messages(text, place, data.columns.prompt)
    if not text.strip():
        raise UserError(f"{place} has an empty prompt in column {data.columns.prompt!r}.")
    return text


def _fill_template(data: DataConfig, template: str, place: str, row: Row) -> str:
    def value_of(field: re.Match[str]) -> str:
        if field[1] == data.columns.answer and not data.answer_in_prompt:
            raise UserError(
                f"prompt_template of {data.label!r} has the field {{{field[1]}}}, the column of "
                "the reference answer: every prompt would give its answer away. Remove the field, "
                "or set answer_in_prompt where it is part of the question."
            )
        return str(_column(row, field[1], place, "prompt_template"))

    # One pass, and no str.format: text of a row is never read as a template.
    return _FIELD.sub(value_of, template)


def _column(row: Row, name: str, place: str, option: str) -> Any:
    if row.get(name) is None:
        present = ", ".join(sorted(row)) or "none"
        raise UserError(
            f"{place} has no column {name!r}, which {option} names. Its columns are: {present}. "
            "Options of the set (columns.prompt, columns.answer, prompt_template) say which is "
            "which; docs/data.md lists the shapes that are known."
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
    if data.columns.answer == _OUR_COLUMNS.answer and data.answer_after is None:
        # A verifier that needs an answer says so in `prepare`.
        return _read_answer(row.get(data.columns.answer), place, data.columns.answer)
    answer = _column(row, data.columns.answer, place, "columns.answer")
    if data.answer_after is None:
        return _read_answer(answer, place, data.columns.answer)
    _, found, tail = str(answer).rpartition(data.answer_after)
    if not found or not tail.strip():
        raise UserError(
            f"{place}: nothing follows {data.answer_after!r} (answer_after) in column "
            f"{data.columns.answer!r}."
        )
    return tail.strip()


def _join_list(reference: Any, verifier: str) -> Any:
    """For `math` a list of texts, as some sets have it, is one answer with several parts."""
    if verifier != "math" or not isinstance(reference, list):
        return reference
    if not reference or not all(isinstance(part, str) for part in reference):
        return reference  # the verifier says what is wrong with it
    return ", ".join(part.strip().strip("$") for part in reference)


def _read_answer(answer: Any, place: str, column: str) -> Any:
    if isinstance(answer, str) and not answer.strip():
        raise UserError(
            f"{place} has an empty answer in column {column!r}. Fill it in, or remove the row."
        )
    return answer


def _check_unique(problems: Sequence[Problem]) -> None:
    seen: dict[str, str] = {}
    for problem in problems:
        if problem.id in seen:
            raise UserError(
                f"{problem.source} has the id {problem.id!r}, which {seen[problem.id]} has "
                f"already; ids must differ."
            )
        seen[problem.id] = problem.source
