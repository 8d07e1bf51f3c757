"""Answering test code that runs elsewhere: calls come in as values, values go back.

What is no value stays here under a number, by which the test code can ask more of it.
"""

from __future__ import annotations

import builtins
import contextlib
import itertools
import json
import operator
from collections.abc import Callable, Iterator
from typing import Any

from sandbox.container import large_values, library_values, values

# Items of an iterator that go over at a time.
CHUNK = 1000


class Answers:
    """One program's answers.

    Args:
        find: Finds what the program has defined, by name.
    """

    def __init__(self, find: Callable[[str], Any]) -> None:
        self._find = find
        self._kept: list[Any] = []
        self._readers = {values.OPAQUE: self._read_kept, library_values.ARRAY: self._read_array}

    def answer(self, request: dict[str, Any]) -> str:
        """What the request asks for, as JSON; raises what the program raises."""
        target = self._target(request["target"])
        arguments = [self._decode(one) for one in request["args"]]
        keywords = {key: self._decode(one) for key, one in request["kwargs"].items()}
        match request["do"]:
            case "call":
                value = self._encode(target(*arguments, **keywords))
            case "more":
                value = self.iterator(target)
            case verb:
                value = self._encode(_VERBS[verb](target, *arguments))
        changed = None
        if request["back"]:
            # What came by value has to go back, for code that looks at its arguments afterwards.
            changed = [self._encode(one) for one in arguments]
        return _json({"value": value, "arguments": changed})

    def exception(self, error: BaseException) -> str:
        """An exception, as JSON: its class's name, a built-in class that it is one of, and text."""
        kind = type(error)
        base = next(one for one in kind.__mro__ if getattr(builtins, one.__name__, None) is one)
        try:
            text = str(error)[:500]
            arguments = values.encode(error.args)
            if not values.is_transparent(arguments):
                arguments = values.encode((text,))
        except BaseException:  # noqa: BLE001 (an exception's own methods raise what they like)
            text, arguments = "", ["tuple", []]
        parts = {"kind": str(kind.__name__)[:80], "base": base.__name__, "text": text}
        return _json({**parts, "arguments": arguments})

    def keep(self, value: Any) -> int:
        """See `values.Keeper`."""
        self._kept.append(value)
        return len(self._kept) - 1

    def iterator(self, value: Iterator[Any], depth: int = 0) -> list[Any]:
        """The next items, then the number of the rest, then the exception that came instead."""
        items: list[Any] = []
        try:
            for item in itertools.islice(value, CHUNK):
                items.append(values.encode(item, depth + 1, self))  # noqa: PERF401 (kept on errors)
        except Exception as error:  # noqa: BLE001 (raised there when the items are used up)
            return [items, None, self.exception(error)]
        return [items, self.keep(value) if len(items) == CHUNK else None, None]

    def _target(self, target: str | int) -> Any:
        return self._find(target) if isinstance(target, str) else self._kept[target]

    def _encode(self, value: Any) -> Any:
        if large_values.is_large(value):
            with contextlib.suppress(ValueError):  # where it is not plain, it has to cross
                found = large_values.digest(value)
                return [large_values.LARGE, [type(value).__name__, found, self.keep(value)]]
        return values.encode(value, keeper=self)

    def _decode(self, payload: Any) -> Any:
        return values.decode(payload, self._readers)

    def _read_kept(self, body: Any) -> Any:
        return self._target(body[2])

    def _read_array(self, body: Any) -> Any:
        return library_values.read_array(body, self._decode)


def _json(message: Any) -> str:
    return json.dumps(message, separators=(",", ":"))


_VERBS: dict[str, Callable[..., Any]] = {
    "attribute": getattr,
    "item": operator.getitem,
    "length": len,
    "text": str,
    "repr": repr,
    "iterate": iter,
}
