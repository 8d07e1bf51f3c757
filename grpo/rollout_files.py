"""Files of judged rollouts: one for each step, a line of JSON for each completion."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from verifiers.errors import UserError

_PLAIN = ".jsonl"
_COMPRESSED = ".jsonl.gz"
_GZIP = zlib.MAX_WBITS | 16


def name_file(step: int, *, compressed: bool) -> str:
    """The name of a step's file."""
    return f"step-{step:06d}{_COMPRESSED if compressed else _PLAIN}"


def list_files(folder: Path) -> dict[int, Path]:
    """The files of a folder by step, the first step first."""
    files = (*folder.glob(f"step-*{_PLAIN}"), *folder.glob(f"step-*{_COMPRESSED}"))
    return {int(file.name.removeprefix("step-")[:6]): file for file in sorted(files)}


def compress(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Lines as the content of a `.gz` file."""
    packer = zlib.compressobj(level=1, wbits=_GZIP)
    for line in lines:
        yield packer.compress(line)
    yield packer.flush()


def read_rows(file: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file.

    Raises:
        UserError: It is not what was written.
    """
    unpack = gzip.open if file.name.endswith(_COMPRESSED) else open
    try:
        with unpack(file, "rt", encoding="utf-8") as lines:
            yield from map(json.loads, lines)
    except (ValueError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{file} is damaged: {error}.") from error
