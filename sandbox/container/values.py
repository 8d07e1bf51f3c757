"""Python values as JSON that keeps their exact types; no code is run to read them back.

`None`, `bool`, `str`, small `int` and finite `float` are themselves. Everything else is
`[tag, payload]`. An instance of a subclass is reduced to its built-in base, so that a redefined
`__eq__` does not survive the crossing; a value of any other type becomes `Opaque`, of which only
its type's name and its truth are known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from sandbox.container import library_values
from sandbox.container.hashing import make_dict, make_frozenset, make_set

MAX_DEPTH = 100
# Longer integers, in hexadecimal digits, do not cross: dividing two of them could keep the judge
# busy for seconds.
MAX_INT_DIGITS = 1 << 17
_EXACT_INT = 1 << 53
OPAQUE = "opaque"
ITERATOR = "iterator"

Readers = Mapping[str, Callable[[Any], Any]]


class Keeper(Protocol):
    """Keeps what cannot cross where it is, and says how the other side may name it."""

    def keep(self, value: Any) -> int:
        """A number for the value."""
        ...

    def iterator(self, value: Any, depth: int) -> Any:
        """Payload for an iterator: what it yields first, and how to get at more."""
        ...


class Opaque:
    """A value of a type that does not cross; equal to nothing, itself included.

    Attributes:
        kind: Name of its type.
        truth: Its truth value; None where it has none.
    """

    __slots__ = ("kind", "truth")

    def __init__(self, kind: str, truth: bool | None) -> None:
        self.kind = kind
        self.truth = truth

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"<{self.kind}>"


def encode(value: Any, depth: int = 0, keeper: Keeper | None = None) -> Any:
    """A JSON value from which `decode` makes an equal value of the exact built-in type.

    Args:
        value: What is to cross.
        depth: How deep in another value it lies.
        keeper: Keeps values of other types; without one, an iterator is read to its end.
    """
    if value is None or value is True or value is False:
        return value
    if depth > MAX_DEPTH:
        return [OPAQUE, ["nested too deep", None]]

    def inner(item: Any) -> Any:
        return encode(item, depth + 1, keeper)

    # Classes are asked for their bases, not values for their `__class__`, which a value can lie
    # about.
    kind = type(value)
    for base, encode_leaf in _LEAVES:
        if issubclass(kind, base):
            return encode_leaf(value)
    for encode_some in (_encode_collection, library_values.encode):
        payload = encode_some(value, inner)
        if payload is not None:
            return payload
    return _encode_foreign(value, depth, keeper)


def decode(payload: Any, readers: Readers | None = None, depth: int = 0) -> Any:
    """The value behind an encoded one.

    Args:
        payload: What `encode` gave.
        readers: By tag, what reads a payload otherwise than this function would.
        depth: How deep in another value it lies.

    Raises:
        ValueError: It was not made by `encode`.
    """
    if payload is None or isinstance(payload, (bool, int, float, str)):
        return payload
    if depth > MAX_DEPTH + 1:
        raise ValueError("nested too deep")

    def inner(item: Any) -> Any:
        return decode(item, readers, depth + 1)

    try:
        tag, body = payload
        read = (readers or {}).get(tag) or _DECODE_LEAF.get(tag)
        return read(body) if read else _decode_collection(tag, body, inner)
    except (TypeError, KeyError, AttributeError, IndexError, ArithmeticError) as error:
        raise ValueError(f"not an encoded value: {error}") from error


def crosses(value: Any) -> bool:
    """Whether a value comes out of `decode(encode(value))` as itself."""
    return is_transparent(encode(value))


def is_transparent(payload: Any) -> bool:
    """Whether an encoded value has no part that stays behind."""
    if not isinstance(payload, list):
        return True
    tag, body = payload
    if tag == "dict":
        return all(is_transparent(part) for pair in body for part in pair)
    return tag not in (OPAQUE, ITERATOR) and (
        tag not in _DECODE_COLLECTION or all(map(is_transparent, body))
    )


def _encode_collection(value: Any, inner: Callable[[Any], Any]) -> Any | None:
    for base, iterate in _COLLECTIONS:
        if issubclass(type(value), base):
            return [base.__name__, [inner(item) for item in iterate(value)]]
    if issubclass(type(value), dict):
        return ["dict", [[inner(key), inner(item)] for key, item in dict.items(value)]]
    return None


def _decode_collection(tag: str, body: Any, inner: Callable[[Any], Any]) -> Any:
    if tag == "dict":
        return make_dict((inner(key), inner(item)) for key, item in body)
    if tag == ITERATOR:
        return iter([inner(item) for item in body[0]])
    if tag in _DECODE_COLLECTION:
        return _DECODE_COLLECTION[tag](inner(item) for item in body)
    return library_values.decode(tag, body, inner)


def _encode_foreign(value: Any, depth: int, keeper: Keeper | None) -> Any:
    kind = type(value)
    if library_values.is_iterator(kind):
        if keeper is not None:
            return [ITERATOR, keeper.iterator(value, depth + 1)]
        items = library_values.first_items(value)
        if items is not None:
            return [ITERATOR, [[encode(item, depth + 1) for item in items], None, None]]
    try:
        truth = bool(value)
    except Exception:  # noqa: BLE001 (a program's own __bool__ raises what it likes)
        truth = None
    name = str(kind.__name__)[:80]
    return [OPAQUE, [name, truth] if keeper is None else [name, truth, keeper.keep(value)]]


def _encode_int(value: int) -> Any:
    exact = int.__index__(value)
    return exact if -_EXACT_INT < exact < _EXACT_INT else ["int", int.__format__(exact, "x")]


def _encode_float(value: float) -> Any:
    exact = float.__pos__(value)
    return exact if math.isfinite(exact) else ["float", float.__repr__(exact)]


def _encode_complex(value: complex) -> Any:
    exact = complex.__pos__(value)
    return ["complex", [float.hex(exact.real), float.hex(exact.imag)]]


def _decode_int(body: str) -> int:
    if len(body) > MAX_INT_DIGITS:
        raise ValueError("an int with too many digits")
    return int(body, 16)


def _decode_complex(body: Any) -> complex:
    real, imaginary = body
    return complex(float.fromhex(real), float.fromhex(imaginary))


def _decode_opaque(body: Any) -> Opaque:
    kind, truth = body[:2]
    return Opaque(str(kind), None if truth is None else bool(truth))


_LEAVES: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (int, _encode_int),
    (float, _encode_float),
    (str, str.__str__),
    (complex, _encode_complex),
    (bytes, lambda value: ["bytes", bytes.hex(value)]),
    (bytearray, lambda value: ["bytearray", bytearray.hex(value)]),
)
_COLLECTIONS: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (list, list.__iter__),
    (tuple, tuple.__iter__),
    (set, set.__iter__),
    (frozenset, frozenset.__iter__),
)
_DECODE_LEAF: dict[str, Callable[[Any], Any]] = {
    "int": _decode_int,
    "float": float,
    "complex": _decode_complex,
    "bytes": bytes.fromhex,
    "bytearray": bytearray.fromhex,
    OPAQUE: _decode_opaque,
    library_values.ARRAY: lambda _body: Opaque(library_values.ARRAY, None),
}
_DECODE_COLLECTION: dict[str, Callable[[Any], Any]] = {
    "list": list,
    "tuple": tuple,
    "set": make_set,
    "frozenset": make_frozenset,
}
