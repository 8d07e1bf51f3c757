"""The jobs that ended a worker: remembered, so that none costs another, and kept for a person."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

from verifiers.errors import UserError

MEMORY_SIZE = 10_000
MAX_ARGUMENT_CHARS = 20_000

Outcome = TypeVar("Outcome")


class PoisonRecord(Generic[Outcome]):
    """Remembers outcomes by the job's pickled arguments; used from several threads.

    Args:
        file: JSONL file to which jobs are appended; None for none. Several processes may share it.

    Raises:
        UserError: The file's folder does not exist.
    """

    def __init__(self, file: str | None = None) -> None:
        self._file = None if file is None else Path(file).expanduser().absolute()
        if self._file is not None and not self._file.parent.is_dir():
            raise UserError(
                f"poison_file={file!r} cannot be written: there is no folder {self._file.parent}; "
                "make it, or name a file elsewhere"
            )
        self._outcomes: OrderedDict[bytes, Outcome] = OrderedDict()
        self._lock = threading.Lock()

    def recall(self, payload: bytes) -> Outcome | None:
        """The outcome of a job that ended its worker before; None for any other."""
        if not self._outcomes:
            return None
        with self._lock:
            return self._outcomes.get(_digest(payload))

    def remember(self, payload: bytes, outcome: Outcome) -> None:
        """Give this outcome without running the job from now on."""
        with self._lock:
            self._outcomes[_digest(payload)] = outcome
            if len(self._outcomes) > MEMORY_SIZE:
                self._outcomes.popitem(last=False)

    def write(self, target: str, arguments: Sequence[Any], *, failure: str, detail: str) -> None:
        """Append a job to the file, its arguments as Python would write them."""
        if self._file is None:
            return
        row = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "target": target,
            "failure": failure,
            "detail": detail,
            "arguments": [repr(argument)[:MAX_ARGUMENT_CHARS] for argument in arguments],
        }
        with self._lock, self._file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(row) + "\n")


def _digest(payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=16).digest()
