"""Worked examples that stand before a question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from grpo.config.data import DataConfig
from grpo.data.files import Row
from grpo.data.rows import read_rows
from verifiers.errors import UserError

Message = dict[str, str]
Shot = tuple[Message, Message]
Question = str | tuple[Message, ...]


def load_shots(data: DataConfig, make_question: Callable[[str, Row], Question]) -> tuple[Shot, ...]:
    """Read a set's worked examples; none where it asks for none.

    Args:
        data: The set; examples are put as its own questions are.
        make_question: The question of a row, given its place and the row.

    Raises:
        UserError: They cannot be read, are too few, or have no worked answer.
    """
    chosen = data.few_shot
    if chosen is None:
        return ()
    source = data.model_copy(
        update={
            "path": chosen.path or data.path,
            "split": chosen.split,
            "limit": chosen.num,
            "where": {},
        }
    )
    if (source.path, source.split) == (data.path, data.split):
        raise UserError(
            f"few_shot of {data.label!r} would take its examples from the questions themselves; "
            "set few_shot.path or few_shot.split to others."
        )
    rows = read_rows(source)
    if len(rows) < chosen.num:
        raise UserError(
            f"few_shot of {data.label!r} asks for {chosen.num} examples, and {source.path!r} has "
            f"{len(rows)} rows."
        )
    column = chosen.answer or data.columns.answer
    return tuple(_make_shot(place, row, column, make_question) for place, row in rows)


def _make_shot(
    place: str, row: Row, column: str, make_question: Callable[[str, Row], Question]
) -> Shot:
    question, answer = make_question(place, row), row.get(column)
    if not isinstance(question, str) or not isinstance(answer, str) or not answer.strip():
        raise UserError(
            f"{place} cannot be a worked example: it needs a question as text, and text in column "
            f"{column!r}. Its columns are: {', '.join(sorted(row))}."
        )
    return ({"role": "user", "content": question}, {"role": "assistant", "content": answer.strip()})


def prepend_shots(prompt: Question, shots: Sequence[Shot]) -> Any:
    """The prompt with the examples as earlier turns, after its system message if it has one."""
    if not shots:
        return prompt
    messages = ({"role": "user", "content": prompt},) if isinstance(prompt, str) else prompt
    num_system = int(messages[0]["role"] == "system")
    turns = (message for shot in shots for message in shot)
    return (*messages[:num_system], *turns, *messages[num_system:])
