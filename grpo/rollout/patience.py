"""A limit for calls of a library that has none of its own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.pool import ThreadPool
from typing import TypeVar

Answer = TypeVar("Answer")


def call_within(limit: timedelta, call: Callable[[], Answer], *, doing: str) -> Answer:
    """Make a call in a thread of its own, which is left behind where it does not return in time.

    torch's store waits for an answer as long as the network keeps silent; where a cable is cut that
    is until the system gives the connection up, a quarter of an hour later.

    Args:
        limit: Longest wait.
        call: What to do.
        doing: What it is, for the message.

    Raises:
        RuntimeError: It did not return in time.
    """
    thread = ThreadPool(1)
    try:
        return thread.apply_async(call).get(limit.total_seconds())
    except multiprocessing.TimeoutError as error:
        raise RuntimeError(
            f"no word for {limit.total_seconds():.0f} s while {doing}; the network may be cut"
        ) from error
    finally:
        thread.close()
