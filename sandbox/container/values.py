"""Python values as JSON that keeps their exact types; no code is run to read them back.

`None`, `bool`, `str`, small `int` and finite `float` are themselves. Everything else is
`[tag, payload]`. An instance of a subclass is reduced to its built-in base, so that a redefined
`__eq__` does not survive the crossing; a value of any other type becomes `Opaque`, of which only
its type's name and its truth are known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

MAX_DEPTH = 100
# Longer integers, in hexadecimal digits, do not cross: dividing two of them could keep the judge
# busy for seconds.
MAX_INT_DIGITS = 1 << 17
_EXACT_INT = 1 << 53
_OPAQUE = "opaque"


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


def encode(value: Any, depth: int = 0) -> Any:
    """A JSON value from which `decode` makes an equal value of the exact built-in type."""
    if value is None or value is True or value is False:
        return value
    if depth > MAX_DEPTH:
        return [_OPAQUE, ["nested too deep", None]]
    # Classes are asked for their bases, not values for their `__class__`, which a value can lie
    # about.
    kind = type(value)
    for base, encode_leaf in _LEAVES:
        if issubclass(kind, base):
            return encode_leaf(value)
    for base, iterate in _COLLECTIONS:
        if issubclass(kind, base):
            return [base.__name__, [encode(item, depth + 1) for item in iterate(value)]]
    if issubclass(kind, dict):
        pairs = dict.items(value)
        return ["dict", [[encode(key, depth + 1), encode(item, depth + 1)] for key, item in pairs]]
    return _encode_foreign(value, depth)


def decode(payload: Any, depth: int = 0) -> Any:
    """The value behind an encoded one.

    Raises:
        ValueError: It was not made by `encode`.
    """
    if payload is None or isinstance(payload, (bool, int, float, str)):
        return payload
    if depth > MAX_DEPTH + 1:
        raise ValueError("nested too deep")
    try:
        tag, body = payload
        if tag in _DECODE_LEAF:
            return _DECODE_LEAF[tag](body)
        if tag == "dict":
            return {decode(key, depth + 1): decode(item, depth + 1) for key, item in body}
        return _DECODE_COLLECTION[tag](decode(item, depth + 1) for item in body)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not an encoded value: {error}") from error


def crosses(value: Any) -> bool:
    """Whether a value comes out of `decode(encode(value))` as itself."""
    return _is_transparent(encode(value))


def _is_transparent(payload: Any) -> bool:
    if not isinstance(payload, list):
        return True
    tag, body = payload
    if tag == "dict":
        return all(_is_transparent(part) for pair in body for part in pair)
    return tag != _OPAQUE and (tag not in _DECODE_COLLECTION or all(map(_is_transparent, body)))


def _encode_int(value: int) -> Any:
    exact = int.__index__(value)
    return exact if -_EXACT_INT < exact < _EXACT_INT else ["int", int.__format__(exact, "x")]


def _encode_float(value: float) -> Any:
    exact = float.__pos__(value)
    return exact if math.isfinite(exact) else ["float", float.__repr__(exact)]


def _encode_complex(value: complex) -> Any:
    exact = complex.__pos__(value)
    return ["complex", [float.hex(exact.real), float.hex(exact.imag)]]


def _encode_foreign(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind.__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        scalar = value.item()
        if type(scalar) in (bool, int, float, complex, str, bytes):
            return encode(scalar, depth + 1)
    try:
        truth = bool(value)
    except Exception:  # noqa: BLE001 (a program's own __bool__ raises what it likes)
        truth = None
    return [_OPAQUE, [str(kind.__name__)[:80], truth]]


def _decode_int(body: str) -> int:
    if len(body) > MAX_INT_DIGITS:
        raise ValueError("an int with too many digits")
    return int(body, 16)


def _decode_complex(body: Any) -> complex:
    real, imaginary = body
    return complex(float.fromhex(real), float.fromhex(imaginary))


def _decode_opaque(body: Any) -> Opaque:
    kind, truth = body
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
    _OPAQUE: _decode_opaque,
}
_DECODE_COLLECTION: dict[str, Callable[[Any], Any]] = {
    base.__name__: base for base, _ in _COLLECTIONS
}
