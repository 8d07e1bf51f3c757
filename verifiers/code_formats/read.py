"""From a row in any published shape to a problem for the `code` verifier."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from verifiers.code_formats.apps import APPS, TACO
from verifiers.code_formats.codecontests import CODECONTESTS
from verifiers.code_formats.commonoj import COMMONOJ
from verifiers.code_formats.evalplus import EVALPLUS
from verifiers.code_formats.humaneval import HUMANEVAL
from verifiers.code_formats.kodcode import KODCODE
from verifiers.code_formats.livecodebench import LIVECODEBENCH
from verifiers.code_formats.mbpp import MBPP
from verifiers.code_formats.rewards import DEEPCODER, PRIME_INTELLECT, VERL
from verifiers.code_formats.row import CodeFormat, Fields
from verifiers.errors import UserError

# A row is of the first format whose columns it has.
FORMATS: tuple[CodeFormat, ...] = (
    EVALPLUS,
    HUMANEVAL,
    MBPP,
    TACO,
    APPS,
    CODECONTESTS,
    LIVECODEBENCH,
    VERL,
    PRIME_INTELLECT,
    DEEPCODER,
    COMMONOJ,
    KODCODE,
)
# Sets that are published in another set's shape, or in one of two.
ALIASES: Mapping[str, tuple[CodeFormat, ...]] = {
    "humaneval_plus": (HUMANEVAL, EVALPLUS),
    "mbpp_plus": (MBPP, EVALPLUS),
    "mbpp_sanitized": (MBPP,),
    "sandboxfusion": (COMMONOJ,),
}
AUTO = "auto"


def read_code_row(
    row: Mapping[str, Any],
    place: str,
    *,
    format: str = AUTO,  # noqa: A002 - the option's name
    time_limit_factor: float = 1.0,
) -> dict[str, Any]:
    """A row of code data in our own columns.

    Args:
        row: The row, columns by name.
        place: Where it stands, as `file:line`; for messages.
        format: A name of `FORMATS` or `ALIASES`; `auto` goes by the columns.
        time_limit_factor: Multiplies time limits that rows state, which are made for compiled
            languages.

    Returns:
        `prompt`, `answer` (the tests), where the row has them `id` and `solution` (a whole right
        program), and the row's other columns, except those that the tests and the solution were
        read from.

    Raises:
        UserError: No such format, or the row is malformed; the message names row and field.

    Example:
        >>> test = {"input": {"stdin": "1"}, "output": {"stdout": "1"}}
        >>> read_code_row({"content": "Echo.", "test": [test]}, "rows.jsonl:1")["answer"]["tests"]
        [{'kind': 'stdio', 'input': '1', 'output': '1'}]
    """
    chosen = detect_format(row, place) if format == AUTO else find_format(format, row)
    read = chosen.read(
        Fields(row=row, place=place, format=chosen.name, time_limit_factor=time_limit_factor)
    )
    columns = {name: value for name, value in row.items() if name not in chosen.bulky}
    columns |= {"prompt": read.prompt, "answer": read.reference}
    optional = {"id": read.id, "solution": read.solution}
    return columns | {name: value for name, value in optional.items() if value is not None}


def format_names() -> tuple[str, ...]:
    """Every name of a format."""
    return (*(one.name for one in FORMATS), *ALIASES)


def find_format(name: str, row: Mapping[str, Any]) -> CodeFormat:
    """A format by its name; of a set that is published in two, the one that the columns show.

    Raises:
        UserError: There is none; the message lists them.
    """
    require_format(name)
    candidates = ALIASES.get(name) or [one for one in FORMATS if one.name == name]
    return next((one for one in candidates if _shows(row, one)), candidates[0])


def require_format(name: str) -> None:
    """Check a format's name.

    Raises:
        UserError: There is none; the message lists them.
    """
    known = [AUTO, *format_names()]
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise UserError(
            f"There is no format of code data {name!r}.{hint} Known are {', '.join(known)}."
        )


def detect_format(row: Mapping[str, Any], place: str) -> CodeFormat:
    """The format that a row's columns show.

    Raises:
        UserError: None of them; the message says by which columns each is known.
    """
    for one in FORMATS:
        if _shows(row, one):
            return one
    known = "; ".join(f"{one.name} ({', '.join(one.columns)})" for one in FORMATS)
    raise UserError(
        f"{place} is in no known format of code data: its columns are "
        f"{', '.join(sorted(row)) or 'none'}, and the formats are known by these: {known}. Rename "
        "the columns, or give the tests in our own form (docs/sandbox.md)."
    )


def _shows(row: Mapping[str, Any], one: CodeFormat) -> bool:
    return all(name in row for name in one.columns)
