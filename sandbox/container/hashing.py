"""Sets and dictionaries of values that a program chose, in time that it cannot choose.

The hash of a number is the number modulo 2^61 - 1, so that a program can return as many different
ones with the same hash as it likes; a set compares each of them with all before it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

MAX_SAME_HASH = 64


def make_set(items: Iterable[Any] = ()) -> set[Any]:
    """A set of the items.

    Raises:
        ValueError: Too many different ones have the same hash.
    """
    return set(_spread(items))


def make_frozenset(items: Iterable[Any] = ()) -> frozenset[Any]:
    """As `make_set`, frozen."""
    return frozenset(_spread(items))


def make_dict(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """A dictionary of keys and values.

    Raises:
        ValueError: Too many different keys have the same hash.
    """
    listed = [(key, value) for key, value in pairs]
    _spread(key for key, _ in listed)
    return dict(listed)


def _spread(items: Iterable[Hashable]) -> list[Hashable]:
    listed = list(items)
    if len(listed) <= MAX_SAME_HASH:
        return listed
    by_hash: dict[int, list[Hashable]] = {}
    for item in listed:
        alike = by_hash.setdefault(hash(item), [])
        if item not in alike:
            alike.append(item)
        if len(alike) > MAX_SAME_HASH:
            raise ValueError(f"more than {MAX_SAME_HASH} different items have the same hash")
    return listed
