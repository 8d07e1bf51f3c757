"""How a symbol is named: subscripts and primes behind it, letters under an accent."""

from __future__ import annotations

from verifiers.maths.cursor import Cursor
from verifiers.maths.expressions import Unreadable


def read_decoration(cursor: Cursor) -> str:
    """Subscript and primes of a symbol, as part of its name."""
    name = ""
    while True:
        if cursor.take("'") or cursor.take("prime", kind="command"):
            name += "'"
        elif cursor.at("^") and cursor.at("*", offset=1):
            cursor.place += 2
            name += "*"
        elif cursor.at("^") and cursor.at("prime", kind="command", offset=1):
            cursor.place += 2
            name += "'"
        elif cursor.at("_") and "_" not in name:
            cursor.place += 1
            name += "_" + _read_subscript(cursor)
        else:
            return name


def read_letters(cursor: Cursor) -> str:
    """The letters that an accent or the sign of an angle stands over or before.

    Raises:
        Unreadable: There are none.
    """
    braced = cursor.take("{")
    name = ""
    while (token := cursor.peek()) is not None and token.kind == "letter":
        name += cursor.next().text
    if not name:
        raise Unreadable("an accent over no letter")
    if braced:
        cursor.expect("}")
    return name


def _read_subscript(cursor: Cursor) -> str:
    if not cursor.take("{"):
        return cursor.next().text
    parts = []
    while not cursor.take("}"):
        token = cursor.next()
        if token.text in ("{", "_", "^"):
            raise Unreadable("a subscript within a subscript")
        parts.append(token.text)
    return "".join(parts)
