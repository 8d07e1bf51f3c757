"""Rows of other trainers, read as they are: which of their columns is what."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grpo.data.files import Row
from verifiers.errors import UserError

PLAIN = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A trainer's columns.

    Attributes:
        name: How a configuration calls it.
        prompt: Column with the question.
        answer: Path of the reference: a column, or a column and a key in it (an object, or the
            JSON text of one).
        id: Path of the row's identity, where the shape has one.
        verifier: Column that names a verifier.
    """

    name: str
    prompt: str
    answer: tuple[str, ...]
    id: tuple[str, ...] = ()
    verifier: str | None = None


# A row is of the first shape whose columns it has.
SHAPES = (
    Shape(name="verl", prompt="prompt", answer=("reward_model", "ground_truth")),
    Shape(name="skyrl", prompt="prompt", answer=("reward_spec", "ground_truth")),
    Shape(
        name="prime_rl",
        prompt="prompt",
        answer=("verification_info", "ground_truth"),
        id=("problem_id",),
    ),
    Shape(name="open_instruct", prompt="messages", answer=("ground_truth",), verifier="dataset"),
    Shape(name="openrlhf", prompt="input", answer=("label",)),
    Shape(name="openrlhf", prompt="prompt", answer=("label",)),
    Shape(name="openrlhf", prompt="context_messages", answer=("label",)),
    Shape(name="trl", prompt="prompt", answer=("solution",)),
    Shape(name="trl", prompt="prompt", answer=("ground_truth",)),
    Shape(name="trl", prompt="problem", answer=("answer",)),
    Shape(name="trl", prompt="problem", answer=("solution",)),
    Shape(name="prime_rl", prompt="question", answer=("answer",)),
)
# What open-instruct calls its verifiers.
_VERIFIERS = {"gsm8k": "math", "math": "math", "ifeval": "ifeval", "code": "code"}


def shape_names() -> tuple[str, ...]:
    """Every shape's name, once."""
    return tuple(dict.fromkeys(shape.name for shape in SHAPES))


def find_shape(row: Row, name: str | None, place: str) -> Shape | None:
    """The shape of a row; None where its columns are our own, or of no known shape.

    Args:
        row: The row.
        name: The shape that the configuration names; None to go by the columns.
        place: Of the row, for messages.

    Raises:
        UserError: The named shape does not exist, or the row lacks its columns.
    """
    if name == PLAIN or (name is None and {"prompt", "answer"} <= row.keys()):
        return None
    candidates = [shape for shape in SHAPES if name in (None, shape.name)]
    for shape in candidates:
        if shape.prompt in row and _look_up(row, shape.answer) is not None:
            return shape
    if name is None:
        return None
    wanted = " or ".join(f"{s.prompt} with {'.'.join(s.answer)}" for s in candidates)
    raise UserError(
        f"{place} has not the columns of format {name!r}: {wanted}. Its columns are: "
        f"{', '.join(sorted(row)) or 'none'}."
    )


def to_plain(row: Row, shape: Shape, default_verifier: str | None) -> Row:
    """The row with `prompt`, `answer`, `verifier` and, where there is one, `id`.

    The columns that those were read from stay; every other one is kept as well.
    """
    plain = {**row, "answer": _look_up(row, shape.answer)}
    plain["prompt"] = _drop_reply(row[shape.prompt])
    identity = _look_up(row, shape.id) if shape.id else None
    if identity is not None:
        plain["id"] = identity
    named = row.get(shape.verifier) if shape.verifier else row.get("verifier")
    if isinstance(named, list) and len(named) == 1:
        (named,) = named
    plain["verifier"] = _VERIFIERS.get(str(named), named) or default_verifier or "math"
    return plain


def _look_up(row: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = row
    for key in path:
        if isinstance(value, str):
            value = _parse(value)
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None  # a text that is no object has no keys to look up


def _drop_reply(prompt: Any) -> Any:
    """A conversation without the reply that some sets end it with."""
    if isinstance(prompt, list) and prompt and isinstance(prompt[-1], Mapping):
        while prompt and prompt[-1].get("role") == "assistant":
            prompt = prompt[:-1]
    return prompt
