"""POSIX shared memory that one process owns and others read."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import time
from multiprocessing import shared_memory
from pathlib import Path

import numpy as np

from verifiers.errors import UserError

FOLDER = Path("/dev/shm")  # noqa: S108 - where Linux keeps shared memory
PREFIX = "verigrad-weights-"
# A segment younger than this may not be locked by its owner yet.
_SETTLED_S = 60.0


class OwnedSegment:
    """A buffer in shared memory that grows when it must and is removed by `close`.

    Should the owner be killed before that, Python's resource tracker removes it; and where that was
    killed too, as Ray does with all that a worker has started, the next owner on the machine does,
    which sees that nobody holds its lock any more.
    """

    def __init__(self) -> None:
        self._segment: shared_memory.SharedMemory | None = None
        self._lock: int | None = None

    @property
    def name(self) -> str:
        """What `open_segment` finds it by; it changes when the buffer grows."""
        assert self._segment is not None, "reserve() comes first"
        return self._segment.name

    def reserve(self, num_bytes: int) -> np.ndarray:
        """The buffer, with at least what was asked for behind it.

        Args:
            num_bytes: Length of the array returned.

        Returns:
            A writable uint8 array. No reference to it may outlive the next `reserve` or `close`.

        Raises:
            UserError: The machine has too little shared memory.
        """
        if self._segment is None or self._segment.size < num_bytes:
            self.close()
            remove_orphans()
            _require_space(num_bytes)
            name = PREFIX + secrets.token_hex(8)
            self._segment = shared_memory.SharedMemory(name, create=True, size=num_bytes)
            self._lock = os.open(FOLDER / name, os.O_RDONLY)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        memory = self._segment.buf
        assert memory is not None, "the segment is open"
        return np.frombuffer(memory, dtype=np.uint8, count=num_bytes)

    def close(self) -> None:
        """Remove the segment; readers keep what they have mapped. Calling it twice is harmless."""
        if self._segment is not None:
            segment, self._segment = self._segment, None
            segment.unlink()
            segment.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def remove_orphans() -> None:
    """Remove the segments of owners that were killed."""
    for path in FOLDER.glob(f"{PREFIX}*"):
        # Another process may remove it at the same time, or be another user's.
        with contextlib.suppress(FileNotFoundError, PermissionError):
            if time.time() - path.stat().st_mtime < _SETTLED_S:
                continue
            descriptor = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            except BlockingIOError:
                pass  # its owner lives
            finally:
                os.close(descriptor)


def open_segment(name: str, num_bytes: int) -> np.ndarray:
    """Map another process's segment for reading.

    `multiprocessing.shared_memory` is not used here: before Python 3.13 it makes a reader remove
    the segment when it exits.
    """
    return np.memmap(FOLDER / name.lstrip("/"), dtype=np.uint8, mode="r", shape=(num_bytes,))


def _require_space(num_bytes: int) -> None:
    # Beyond its size this file system gives no error: the writer is killed by SIGBUS.
    free = shutil.disk_usage(FOLDER).free
    if free < num_bytes:
        raise UserError(
            f"Pushing the weights needs {num_bytes / 1e6:.0f} MB of shared memory and {FOLDER} has "
            f"{free / 1e6:.0f} MB free. Enlarge it: `docker run --shm-size ...`, or "
            f"`mount -o remount,size=... {FOLDER}`."
        )
