"""Keeps a file to one process, so that two commands do not write into one folder."""

from __future__ import annotations

import errno
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from verifiers.errors import UserError

# A file system without locks keeps nobody apart, and is no reason to refuse the work.
_NO_LOCKS = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK})


@contextmanager
def hold_file(file: Path, *, busy: str) -> Iterator[None]:
    """Hold a file; the system lets go of it should this process be killed.

    Args:
        file: One that is there, and is never replaced by another.
        busy: What to tell the user where another process holds it.

    Raises:
        UserError: Another process does.
    """
    # Some network file systems lock only what is open for writing.
    with file.open("r+b") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(busy) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        yield
