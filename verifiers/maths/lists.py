"""What the items of a list say together."""

from __future__ import annotations

from collections.abc import Sequence

from verifiers.maths.answers import Answer, Collection, Quantity, Relation
from verifiers.maths.expressions import Symbol, find_symbols


def share_name(items: list[Answer]) -> list[Answer]:
    """`m = 4, 5, 6` is three values of m, and `a = 3 or a = -1` two of a."""
    first = items[0]
    if not (isinstance(first, Relation) and first.operators == ("=",) and _is_name(first.sides[0])):
        return items
    name = first.sides[0]
    values: list[Answer] = []
    for item in items:
        if isinstance(item, Relation):
            if item.operators != ("=",) or item.sides[0] != name:
                return items
            values.append(item.sides[1])
        elif isinstance(item, Quantity) and not find_symbols(item.expression):
            values.append(item)
        else:
            return items
    return values


def flatten(items: Sequence[Answer]) -> list[Answer]:
    """A plus-minus within a list stands for two of its items."""
    flat: list[Answer] = []
    for item in items:
        if isinstance(item, Collection) and item.kind == "list":
            flat.extend(item.items)
        else:
            flat.append(item)
    return flat


def _is_name(answer: Answer) -> bool:
    return isinstance(answer, Quantity) and isinstance(answer.expression, Symbol)
