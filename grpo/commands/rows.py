"""Rows of a JSONL file or of standard input, as the commands that judge read them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from verifiers.errors import UserError
from verifiers.problem import Problem


def make_problem(row: Mapping[str, Any], gold_column: str, verifier: str, source: str) -> Problem:
    """A row's problem; every other column stays with it.

    Raises:
        UserError: The row has no such gold column.
    """
    return Problem(
        id=str(row.get("id", source.rpartition(":")[2])),
        prompt=row.get("prompt", ""),
        verifier=verifier,
        reference=get_column(row, gold_column, source),
        source=source,
        columns={key: value for key, value in row.items() if key != gold_column},
    )


def get_column(row: Mapping[str, Any], name: str, source: str) -> Any:
    """A row's value in a column.

    Raises:
        UserError: The row has no such column.
    """
    if name not in row:
        raise UserError(f"{source}: there is no column {name!r}; the row has {', '.join(row)}")
    return row[name]


def read_rows(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows of a JSONL file, or of standard input for `-`, each with its `file:line`.

    Raises:
        UserError: There is no such file, or a line is no JSON object.
    """
    if name == "-":
        yield from _parse_rows("standard input", sys.stdin)
        return
    if not Path(name).is_file():
        raise UserError(f"there is no file {name!r}")
    with Path(name).open(encoding="utf-8") as lines:
        yield from _parse_rows(name, lines)


def _parse_rows(name: str, lines: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        source = f"{name}:{number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{source}: not a JSON object ({error})") from error
        if not isinstance(row, dict):
            raise UserError(f"{source}: a JSON object is expected, not {type(row).__name__}")
        yield source, row
