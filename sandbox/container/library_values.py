"""Values of library types that cross: ranges, iterators, dict views, deques, fractions, arrays.

Each is written down as plain values and made anew by its own constructor. Arrays are made anew in
containers only: outside, they stay opaque, so that no numerical library is needed there.
"""

from __future__ import annotations

import base64
import collections
import datetime as dt
import decimal
import fractions
import itertools
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

from sandbox.container.hashing import make_dict

# An iterator with more items than this is not read to its end, and a range with more, or a decimal
# with a larger exponent, does not cross: it would be a short way to write something that takes the
# reader without limit to walk through.
MAX_ITEMS = 1 << 16
MAX_EXPONENT = 1000
ARRAY = "ndarray"

_KEYS, _VALUES, _ITEMS = type({}.keys()), type({}.values()), type({}.items())
_DTYPE = re.compile(r"[<>|=]?[biufcSUmM]\d{1,6}(\[\w+\])?")

Encode = Callable[[Any], Any]


def encode(value: Any, inner: Encode) -> Any:
    """`[tag, payload]` of a value of one of these types; None for any other value.

    Args:
        value: The value.
        inner: Encodes the values inside it.
    """
    for kind, write in _WRITERS:
        if issubclass(type(value), kind):
            return [kind.__name__, write(value, inner)] if _is_small(value) else None
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    if issubclass(type(value), numpy.ndarray):
        return [ARRAY, _write_array(numpy, value, inner)]
    if issubclass(type(value), numpy.generic):
        plain = numpy.generic.item(value)
        return None if isinstance(plain, numpy.generic) else inner(plain)
    return None


def decode(tag: str, body: Any, inner: Encode) -> Any:
    """The value behind `[tag, body]`; raises KeyError for a tag that is not one of these."""
    value = _READERS[tag](body, inner)
    if not _is_small(value):
        raise ValueError(f"a {tag} that is too large")
    return value


def is_iterator(kind: type) -> bool:
    """Whether instances of the type are iterators."""
    return hasattr(kind, "__next__") and hasattr(kind, "__iter__")


def first_items(value: Iterator[Any], limit: int = MAX_ITEMS) -> list[Any] | None:
    """Everything that an iterator yields; None if that is more than the limit."""
    items = list(itertools.islice(value, limit + 1))
    return items if len(items) <= limit else None


def read_array(body: Any, inner: Encode) -> Any:
    """The array behind an encoded one, in a process that has numpy.

    Raises:
        ValueError: It was not made by `encode`.
    """
    import numpy  # noqa: ICN001 (in containers, where a value needs it)

    dtype, shape, content = body
    if dtype == "O":
        array = numpy.empty(len(content), dtype=object)
        array[:] = [inner(item) for item in content]
    elif _DTYPE.fullmatch(dtype):
        array = numpy.frombuffer(base64.b64decode(content), dtype=dtype).copy()
    else:
        raise ValueError(f"no array of {dtype!r:.40}")
    return array.reshape(tuple(shape))


def _is_small(value: Any) -> bool:
    if isinstance(value, range):
        return not value or abs((value[-1] - value[0]) // value.step) < MAX_ITEMS
    if isinstance(value, decimal.Decimal):
        return not value.is_finite() or abs(decimal.Decimal.adjusted(value)) <= MAX_EXPONENT
    return True


def _write_array(numpy: Any, value: Any, inner: Encode) -> list[Any]:
    array = numpy.ndarray.view(value, numpy.ndarray)
    shape, dtype = list(array.shape), array.dtype
    if dtype.hasobject or not _DTYPE.fullmatch(dtype.str):
        return ["O", shape, [inner(item) for item in array.ravel().tolist()]]
    return [dtype.str, shape, base64.b64encode(array.tobytes()).decode("ascii")]


def _write_deque(value: Any, inner: Encode) -> list[Any]:
    deque = collections.deque
    return [[inner(item) for item in deque.__iter__(value)], deque.maxlen.__get__(value)]


def _write_fraction(value: Any, inner: Encode) -> list[Any]:
    kind = fractions.Fraction
    return [inner(kind.numerator.__get__(value)), inner(kind.denominator.__get__(value))]


_WRITERS: tuple[tuple[type, Callable[[Any, Encode], Any]], ...] = (
    (range, lambda value, inner: [inner(value.start), inner(value.stop), inner(value.step)]),
    (collections.deque, _write_deque),
    (_KEYS, lambda value, inner: [inner(item) for item in value]),
    (_VALUES, lambda value, inner: [inner(item) for item in value]),
    (_ITEMS, lambda value, inner: [inner(item) for item in value]),
    (fractions.Fraction, _write_fraction),
    (decimal.Decimal, lambda value, _inner: decimal.Decimal.__str__(value)),
    (dt.datetime, lambda value, _inner: dt.datetime.isoformat(value)),
    (dt.date, lambda value, _inner: dt.date.isoformat(value)),
    (dt.time, lambda value, _inner: dt.time.isoformat(value)),
    (dt.timedelta, lambda value, _inner: [value.days, value.seconds, value.microseconds]),
)
_READERS: dict[str, Callable[[Any, Encode], Any]] = {
    "range": lambda body, inner: range(*map(inner, body)),
    "deque": lambda body, inner: collections.deque(map(inner, body[0]), body[1]),
    "dict_keys": lambda body, inner: make_dict((inner(key), None) for key in body).keys(),
    "dict_values": lambda body, inner: dict(enumerate(map(inner, body))).values(),
    "dict_items": lambda body, inner: make_dict(map(inner, body)).items(),
    "Fraction": lambda body, inner: fractions.Fraction(*map(inner, body)),
    "Decimal": lambda body, _inner: decimal.Decimal(body),
    "datetime": lambda body, _inner: dt.datetime.fromisoformat(body),
    "date": lambda body, _inner: dt.date.fromisoformat(body),
    "time": lambda body, _inner: dt.time.fromisoformat(body),
    "timedelta": lambda body, _inner: dt.timedelta(*body),
}
