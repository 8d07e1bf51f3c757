"""Rows of a local file, each with the place it came from."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from verifiers.errors import UserError

Row = dict[str, Any]
FORMATS = (".jsonl", ".json", ".csv", ".parquet", ".arrow")
_MAX_CELL_CHARS = 1 << 28  # tests of code problems are long


def format_of(file: Path) -> str | None:
    """The data format that a file's name shows; None for any other name."""
    suffix = Path(file.stem).suffix if file.suffix == ".gz" else file.suffix
    return suffix if suffix in FORMATS else None


def read_file(file: Path) -> Iterator[tuple[str, Row]]:
    """Read a file's rows, as (place, row) pairs.

    Raises:
        UserError: It is in no known format, or cannot be read; the message names file and line.
    """
    match format_of(file):
        case ".jsonl":
            return _jsonl_rows(file)
        case ".json":
            return _json_rows(file)
        case ".csv":
            return _csv_rows(file)
        case ".parquet" | ".arrow" as kind if file.suffix != ".gz":
            return _columnar_rows(file, kind)
        case _:
            raise UserError(
                f"{file} has no known data format; use one of {', '.join(FORMATS)} (the first "
                "three also as .gz)."
            )


def _read_text(file: Path) -> str:
    try:
        data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        return data.decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise UserError(f"{file} cannot be read as UTF-8 text: {error}") from None


def _jsonl_rows(file: Path) -> Iterator[tuple[str, Row]]:
    for number, line in enumerate(_read_text(file).split("\n"), start=1):
        if line.strip():
            place = f"{file}:{number}"
            yield place, _as_row(_parse_json(line, place), place)


def _json_rows(file: Path) -> Iterator[tuple[str, Row]]:
    rows = _parse_json(_read_text(file), str(file))
    if not isinstance(rows, list):
        raise UserError(f"{file} must hold a JSON list of rows, but holds {type(rows).__name__}.")
    for number, row in enumerate(rows, start=1):
        place = f"{file}[{number}]"
        yield place, _as_row(row, place)


def _csv_rows(file: Path) -> Iterator[tuple[str, Row]]:
    csv.field_size_limit(_MAX_CELL_CHARS)
    reader = csv.DictReader(io.StringIO(_read_text(file), newline=""), strict=True)
    try:
        for row in reader:
            place = f"{file}:{reader.line_num}"
            if None in row or None in row.values():
                raise UserError(
                    f"{place}: the row has another number of cells than the heading, which has "
                    f"{len(reader.fieldnames or ())}. Quote cells that hold commas."
                )
            yield place, dict(row)
    except csv.Error as error:
        raise UserError(f"{file}:{reader.line_num} is not valid CSV: {error}.") from None


def _columnar_rows(file: Path, kind: str) -> Iterator[tuple[str, Row]]:
    import datasets

    try:
        loaded = (
            datasets.Dataset.from_parquet(str(file))
            if kind == ".parquet"
            else datasets.Dataset.from_file(str(file))
        )
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read as {kind[1:]}: {error}") from None
    for number, row in enumerate(loaded):
        yield f"{file}[{number}]", dict(row)


def _parse_json(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(
            f"{place} is not valid JSON: {error.msg} at column {error.colno}."
        ) from None


def _as_row(value: Any, place: str) -> Row:
    if not isinstance(value, dict):
        raise UserError(f"{place} must be a JSON object, but is {type(value).__name__}.")
    return value
