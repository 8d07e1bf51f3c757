"""Rows of a local file or of a hub data set, each with the place it came from."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grpo.config.schema import DataConfig
from grpo.paths import project_roots
from verifiers.errors import UserError

Row = dict[str, Any]
_FORMATS = (".jsonl", ".json", ".csv", ".parquet", ".arrow")


def read_rows(data: DataConfig) -> list[tuple[str, Row]]:
    """Read a data set, as (place, row) pairs.

    Args:
        data: Where it is; `limit` is honoured.

    Raises:
        UserError: It cannot be found or read; the message names file and line.
    """
    file = _find_local(data.path)
    rows = _local_rows(file) if file else _hub_rows(data)
    taken = []
    for place, row in rows:
        if data.limit is not None and len(taken) == data.limit:
            break
        taken.append((place, row))
    if not taken:
        raise UserError(f"The data set {data.path!r} has no rows.")
    return taken


def _find_local(path: str) -> Path | None:
    given = Path(path).expanduser()
    bases = [Path()] if given.is_absolute() else [Path(), *project_roots()]
    for base in bases:
        if (base / given).is_file():
            return base / given
    if _format_of(given) or path.count("/") != 1 or given.is_absolute():
        raise UserError(
            f"The data file {path!r} does not exist. Give the path of a {', '.join(_FORMATS)} file "
            "(each also .gz), relative to the working folder or to the project, or a hub id "
            "(owner/name)."
        )
    return None


def _format_of(file: Path) -> str | None:
    suffix = Path(file.stem).suffix if file.suffix == ".gz" else file.suffix
    return suffix if suffix in _FORMATS else None


def _local_rows(file: Path) -> Iterator[tuple[str, Row]]:
    match _format_of(file):
        case ".jsonl":
            return _jsonl_rows(file)
        case ".json":
            return _json_rows(file)
        case ".csv":
            return _csv_rows(file)
        case ".parquet" | ".arrow" as kind:
            return _columnar_rows(file, kind)
        case _:
            raise UserError(f"{file} has no known data format; use one of {', '.join(_FORMATS)}.")


def _read_text(file: Path) -> str:
    try:
        data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        return data.decode("utf-8")
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
    for number, row in enumerate(csv.DictReader(_read_text(file).splitlines()), start=2):
        yield f"{file}:{number}", dict(row)


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


def _hub_rows(data: DataConfig) -> Iterator[tuple[str, Row]]:
    import datasets

    try:
        loaded = datasets.load_dataset(
            data.path, data.subset, split=data.split, revision=data.revision
        )
    except Exception as error:  # the library raises a different class for every kind of trouble
        raise UserError(
            f"The data set {data.path!r} is no local file, and the hub did not give it: "
            f"{type(error).__name__}: "
            f"{error}. Check the id, subset={data.subset!r} and split={data.split!r}; without a "
            f"connection name a "
            "local copy (path=...)."
        ) from error
    for number, row in enumerate(loaded):
        yield f"{data.path}[{data.split}]:{number}", dict(row)


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
