"""Rows of a data set, wherever it is: a local file, the hub, or a generator of puzzles."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from grpo.config.data import DataConfig
from grpo.config.recipes import recipe_names
from grpo.data.files import FORMATS, Row, format_of, read_file
from grpo.data.generated import PREFIX, generate_rows
from grpo.paths import project_roots
from verifiers.errors import UserError


def read_rows(data: DataConfig) -> list[tuple[str, Row]]:
    """Read a data set, as (place, row) pairs.

    Args:
        data: Where it is; `where` and `limit` are honoured.

    Raises:
        UserError: It cannot be found or read; the message names file and line.
    """
    taken = []
    num_read = 0
    for place, row in _find_rows(data):
        if data.limit is not None and len(taken) == data.limit:
            break
        num_read += 1
        if all(_keeps(wanted, name, row, place) for name, wanted in data.where.items()):
            taken.append((place, row))
    if not taken:
        left = f" that `where` keeps, of {num_read}" if num_read else ""
        raise UserError(f"The data set {data.path!r} has no rows{left}.")
    return taken


def _find_rows(data: DataConfig) -> Iterator[tuple[str, Row]]:
    if data.path.startswith(PREFIX):
        return generate_rows(data.path, split=data.split, size=data.limit)
    file = _find_local(data.path)
    return read_file(file) if file else _hub_rows(data)


def _find_local(path: str) -> Path | None:
    given = Path(path).expanduser()
    bases = [Path()] if given.is_absolute() else [Path(), *project_roots()]
    for base in bases:
        if (base / given).is_file():
            return base / given
    if format_of(given) or path.count("/") != 1 or given.is_absolute():
        near = difflib.get_close_matches(path, recipe_names(), n=2)
        hint = f" Or did you mean `recipe: {near[0]}`?" if near else ""
        raise UserError(
            f"The data file {path!r} does not exist. Give the path of a {', '.join(FORMATS)} file "
            "(the first three also .gz), relative to the working folder or to the project, or a "
            f"hub id (owner/name).{hint}"
        )
    return None


def _hub_rows(data: DataConfig) -> Iterator[tuple[str, Row]]:
    import datasets

    try:
        if data.files:
            at = f"@{data.revision}" if data.revision else ""
            kind = (format_of(Path(data.files[0])) or "").removeprefix(".")
            loaded = datasets.load_dataset(
                {"jsonl": "json"}.get(kind, kind),
                data_files=[
                    f"hf://datasets/{data.path}{at}/{file.replace('{split}', data.split)}"
                    for file in data.files
                ],
                split="train",  # what the library calls files without splits
            )
        else:
            loaded = datasets.load_dataset(
                data.path, data.subset, split=data.split, revision=data.revision
            )
    except Exception as error:  # the library raises a different class for every kind of trouble
        raise UserError(
            f"The data set {data.path!r} is no local file, and the hub did not give it: "
            f"{type(error).__name__}: {error}. Check the id, subset={data.subset!r}, "
            f"split={data.split!r} and revision={data.revision!r}. Without a connection name a "
            "local copy (data.0.path=rows.jsonl or evaluation.data.0.path=rows.jsonl; a recipe "
            "keeps everything else). Behind a mirror set HF_ENDPOINT; for a gated set, HF_TOKEN; "
            "with a filled cache, HF_HUB_OFFLINE=1."
        ) from error
    for number, row in enumerate(loaded):
        yield f"{data.path}[{data.split}]:{number}", dict(row)


def _keeps(wanted: Any, name: str, row: Row, place: str) -> bool:
    """Whether a row's value is the wanted one, one of them, or within their range."""
    if name not in row:
        raise UserError(
            f"{place} has no column {name!r}, which `where` needs. Its columns are: "
            f"{', '.join(sorted(row))}."
        )
    value = row[name]
    if not isinstance(wanted, Mapping):
        allowed = wanted if isinstance(wanted, list | tuple) else [wanted]
        return value in allowed or str(value) in {str(one) for one in allowed}
    if not wanted or not set(wanted) <= {"from", "to"}:
        raise UserError(f"`where` of column {name!r} takes `from` and `to`, not {dict(wanted)!r}.")
    low, high = wanted.get("from"), wanted.get("to")
    return (low is None or _comparable(value, low) >= _comparable(low, low)) and (
        high is None or _comparable(value, high) <= _comparable(high, high)
    )


def _comparable(value: Any, bound: Any) -> Any:
    """Numbers as they are; all else as text, as far as the bound goes: 2025-02 has its last day."""
    if isinstance(bound, int | float):
        return float(value)
    return str(value)[: len(str(bound))]
