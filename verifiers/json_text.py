"""Strict JSON, as the verifiers read it: one value, no repeated key, no number JSON lacks."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import Any, NoReturn

from verifiers.verdict import Reason

MAX_DEPTH = 64

_FENCE = re.compile(r"^ {0,3}(`{3,}+|~{3,}+)[ \t]*+([^\s`]*+)[^\S\n]*$", re.MULTILINE)
_TAGS = frozenset({"", "json"})
# A string whose end is missing still counts as one token, so that every character is read once.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)


class NotJson(ValueError):
    """The text is no strict JSON; the message says why."""


class TooDeep(NotJson):
    """Arrays and objects are nested deeper than `MAX_DEPTH`."""


def find_json(text: str) -> str | Reason:
    r"""The one closed block fenced as JSON or without a language; without a block, the whole text.

    Example:
        >>> find_json("Here it is:\n```json\n[1]\n```\nDone.")
        '[1]\n'
    """
    blocks: list[str] = []
    opened: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opened is None:
            opened = fence
        elif not fence[2] and fence[1].startswith(opened[1]):
            if opened[2].lower() in _TAGS:
                blocks.append(text[opened.end() + 1 : fence.start()])
            opened = None
    if len(blocks) > 1:
        return Reason.MULTIPLE_ANSWERS
    return blocks[0] if blocks else text


def read_json(text: str) -> Any:
    """The value of a JSON text.

    Raises:
        NotJson: The text is not JSON, repeats a key in an object, or holds NaN, an infinity or a
            number beyond the range of floats (or integers of thousands of digits).
        TooDeep: It is nested too deeply.
    """
    _check_depth(text)
    try:
        return json.loads(
            text,
            object_pairs_hook=_read_object,
            parse_constant=_refuse_constant,
            parse_float=_read_float,
        )
    except ValueError as error:
        raise NotJson(str(error)) from error


def _check_depth(text: str) -> None:
    depth = 0
    for token in _TOKEN.finditer(text):
        match token.group():
            case "[" | "{":
                depth += 1
            case "]" | "}":
                depth -= 1
        if depth > MAX_DEPTH:
            raise TooDeep(f"nested more than {MAX_DEPTH} deep")


def _read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        (repeated, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise NotJson(f"the key {repeated[:80]!r} stands more than once in one object")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise NotJson(f"{name} is not JSON")


def _read_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise NotJson(f"the number {text[:80]} is out of range")
    return value
