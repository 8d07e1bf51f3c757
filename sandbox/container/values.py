"""Python values as JSON that keeps their exact types; no code is run to read them back.

`None`, `bool`, `str`, small `int` and finite `float` are themselves. Everything else is `[tag, payload]`. An instance of
a subclass is reduced to its built-in base, so that a redefined `__eq__` does not survive the crossing; a value of any
other type becomes `Opaque`, of which only its type's name and its truth are known.
"""

from __future__ import annotations

import math
from typing import Any

MAX_DEPTH = 100
# Longer integers, in hexadecimal digits, do not cross: dividing two of them could keep the judge busy for seconds.
MAX_INT_DIGITS = 1 << 17
_EXACT_INT = 1 << 53


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

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{self.kind}>"


def encode(value: Any, depth: int = 0) -> Any:
    """A JSON value from which `decode` makes an equal value of the exact built-in type."""
    if value is None or value is True or value is False:
        return value
    if depth > MAX_DEPTH:
        return ["opaque", ["nested too deep", None]]
    # Classes are asked for their bases, not values for their `__class__`, which a value can lie about.
    for base, encoder in _ENCODERS:
        if issubclass(type(value), base):
            return encoder(value, depth)
    return _encode_other(value, depth)


def decode(payload: Any, depth: int = 0) -> Any:
    """The value behind an encoded one.

    Raises:
        ValueError: It was not made by `encode`.
    """
    if payload is None or isinstance(payload, (bool, int, float, str)):
        return payload
    if depth > MAX_DEPTH + 1 or not isinstance(payload, list) or len(payload) != 2:
        raise ValueError("not an encoded value")
    tag, body = payload
    decoder = _DECODERS.get(tag) if isinstance(tag, str) else None
    if decoder is None:
        raise ValueError(f"unknown tag {tag!r:.40}")
    try:
        return decoder(body, depth)
    except (TypeError, ValueError) as error:
        raise ValueError(f"malformed {tag}: {error}") from error


def _encode_int(value: int, depth: int) -> Any:
    exact = int.__index__(value)
    return exact if -_EXACT_INT < exact < _EXACT_INT else ["int", int.__format__(exact, "x")]


def _encode_float(value: float, depth: int) -> Any:
    exact = float.__pos__(value)
    return exact if math.isfinite(exact) else ["float", float.__repr__(exact)]


def _encode_complex(value: complex, depth: int) -> Any:
    exact = complex.__pos__(value)
    return ["complex", [_encode_float(exact.real, depth), _encode_float(exact.imag, depth)]]


def _sequence(tag: str, iterate: Any) -> Any:
    return lambda value, depth: [tag, [encode(item, depth + 1) for item in iterate(value)]]


def _encode_dict(value: dict[Any, Any], depth: int) -> Any:
    items = dict.items(value)
    return ["dict", [[encode(key, depth + 1), encode(item, depth + 1)] for key, item in items]]


def _encode_other(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind.__module__ == "numpy" and hasattr(kind, "item") and getattr(value, "ndim", None) == 0:
        scalar = value.item()
        if isinstance(scalar, (bool, int, float, complex, str, bytes)):
            return encode(scalar, depth + 1)
    try:
        truth = bool(value)
    except Exception:  # whatever a program's own __bool__ raises: then it has no truth value
        truth = None
    return ["opaque", [str(kind.__name__)[:80], truth]]


_ENCODERS: tuple[tuple[type, Any], ...] = (
    (int, _encode_int),
    (float, _encode_float),
    (str, lambda value, depth: str.__str__(value)),
    (list, _sequence("list", list.__iter__)),
    (tuple, _sequence("tuple", tuple.__iter__)),
    (dict, _encode_dict),
    (set, _sequence("set", set.__iter__)),
    (frozenset, _sequence("frozenset", frozenset.__iter__)),
    (complex, _encode_complex),
    (bytes, lambda value, depth: ["bytes", bytes.hex(value)]),
    (bytearray, lambda value, depth: ["bytearray", bytearray.hex(value)]),
)


def _items(body: Any, depth: int) -> list[Any]:
    if not isinstance(body, list):
        raise ValueError("not a list")
    return [decode(item, depth + 1) for item in body]


def _decode_int(body: Any, depth: int) -> int:
    if not isinstance(body, str) or len(body) > MAX_INT_DIGITS:
        raise ValueError("not a hexadecimal text, or too long a one")
    return int(body, 16)


def _decode_dict(body: Any, depth: int) -> dict[Any, Any]:
    return dict(_items(pair, depth) for pair in body)


def _decode_opaque(body: Any, depth: int) -> Opaque:
    kind, truth = body
    return Opaque(str(kind), None if truth is None else bool(truth))


_DECODERS: dict[str, Any] = {
    "int": _decode_int,
    "float": lambda body, depth: float(body),
    "complex": lambda body, depth: complex(*_items(body, depth)),
    "list": _items,
    "tuple": lambda body, depth: tuple(_items(body, depth)),
    "dict": _decode_dict,
    "set": lambda body, depth: set(_items(body, depth)),
    "frozenset": lambda body, depth: frozenset(_items(body, depth)),
    "bytes": lambda body, depth: bytes.fromhex(body),
    "bytearray": lambda body, depth: bytearray.fromhex(body),
    "opaque": _decode_opaque,
}
