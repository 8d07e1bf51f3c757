"""Argument types that JSON has lost, restored after calls that are written out in Python."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from sandbox.source import parse

_NUMBERS = (int, float, complex)


def read_calls(source: str, function: str) -> list[tuple[Any, ...]]:
    """Arguments of the calls of a function whose arguments are literals.

    Raises:
        SyntaxError: The source does not compile.

    Example:
        >>> read_calls("assert sorted(f((1, 2), 'a')) == [1]", "f")
        [((1, 2), 'a')]
    """
    calls: list[tuple[Any, ...]] = []
    for node in ast.walk(parse(source)):
        match node:
            case ast.Call(func=ast.Name(id=name), args=arguments) if name == function:
                try:
                    calls.append(tuple(map(ast.literal_eval, arguments)))
                except ValueError:
                    continue  # an argument is computed: its type is not written there
    return calls


def restore_types(
    values: Sequence[Any], calls: Sequence[Sequence[Any]], *, deeper: type = list
) -> list[Any]:
    """Arguments that went through JSON, with the types that they have in other calls.

    Args:
        values: The arguments.
        calls: Arguments of other calls of the function.
        deeper: What lists are that lie deeper than any in those calls.

    Example:
        >>> restore_types([[3, [4]], "1j"], [((1, 2), 2j)])
        [(3, [4]), 1j]
    """
    restored: list[Any] = []
    for index, value in enumerate(values):
        samples = [call[index] for call in calls if index < len(call)]
        numbers = bool(samples) and all(isinstance(one, _NUMBERS) for one in samples)
        restored.append(
            _restore_number(value)
            if numbers and isinstance(value, str)
            else _restore(value, samples, deeper)
        )
    return restored


def _restore(value: Any, samples: Sequence[Any], deeper: type) -> Any:
    if isinstance(value, list):
        known = [one for one in samples if isinstance(one, (list, tuple, set))]
        return _restore_list(value, known, deeper)
    if isinstance(value, dict):
        known = [one for one in samples if isinstance(one, dict)]
        inner = [item for one in known for item in one.values()]
        keys = [key for one in known for key in one]
        return {
            _restore_key(key, keys): _restore(item, inner, deeper) for key, item in value.items()
        }
    return value


def _restore_list(value: list[Any], samples: Sequence[Any], deeper: type) -> Any:
    if samples and all(type(one) is tuple and len(one) == len(value) for one in samples):
        columns = [[one[i] for one in samples] for i in range(len(value))]
    else:
        columns = [[item for one in samples for item in one]] * len(value)
    items = [_restore(item, column, deeper) for item, column in zip(value, columns, strict=True)]
    kinds = {type(one) for one in samples} or {deeper}
    # Where the samples differ, the list that JSON knows is as good as any.
    kind = kinds.pop() if len(kinds) == 1 else list
    try:
        return kind(items)
    except TypeError:  # a set of lists
        return items


def _restore_key(key: str, samples: Sequence[Any]) -> Any:
    whole = samples and all(type(one) is int for one in samples)
    return int(key) if whole and key.lstrip("-").isdigit() else key


def _restore_number(text: str) -> Any:
    try:
        return complex(text)
    except ValueError:
        return text
