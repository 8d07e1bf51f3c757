"""Values too large to cross: what crosses is a digest, which equal values share.

A digest says no more than the value would: whoever does not know what is expected cannot make the
right one without computing it.
"""

from __future__ import annotations

import hashlib
import itertools
import marshal
from collections.abc import Iterator
from typing import Any

LARGE = "large"
MAX_LEAVES = 100_000

_SEQUENCES = (list, tuple)
_SAME_IN_BYTES = frozenset({int, str, bytes, type(None)})
_NUMBERS = frozenset({bool, float})
# The oldest version that knows all types: later ones write equal values in more than one way.
_VERSION = 2


def is_large(value: Any) -> bool:
    """Whether a list or tuple has more leaves than a message should hold."""
    if type(value) not in _SEQUENCES:
        return False
    try:
        return next(itertools.islice(_leaves(value), MAX_LEAVES, None), _leaves) is not _leaves
    except RecursionError:  # too deep to cross as well
        return False


def digest(value: Any) -> str:
    """A digest of a list or tuple: the same for equal values, whatever the types of numbers.

    Raises:
        ValueError: It holds something that is no sequence, number, text or None.
    """
    found = hashlib.blake2b(digest_size=32)
    for piece in _pieces(value):
        found.update(piece)
    return found.hexdigest()


def _leaves(value: Any) -> Iterator[Any]:
    for item in value:
        if type(item) in _SEQUENCES:
            yield from _leaves(item)
        else:
            yield item


def _pieces(value: Any) -> Iterator[bytes]:
    kinds = set(map(type, value))
    if kinds <= _SAME_IN_BYTES:
        yield marshal.dumps(value, _VERSION)
    elif kinds <= _SAME_IN_BYTES | _NUMBERS:
        yield marshal.dumps(type(value)(map(_plain, value)), _VERSION)
    elif kinds <= {*_SAME_IN_BYTES, *_NUMBERS, *_SEQUENCES}:
        yield f"{type(value).__name__} {len(value)}".encode()
        for item in value:
            if type(item) in _SEQUENCES:
                yield from _pieces(item)
            else:
                yield marshal.dumps(_plain(item), _VERSION)
    else:
        raise ValueError("not made of plain values only")


def _plain(value: Any) -> Any:
    """The integer that a number is equal to, where there is one."""
    if type(value) is bool or (type(value) is float and value.is_integer()):
        return int(value)
    return value
