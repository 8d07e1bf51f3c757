r"""The marks and words that part tokens into items: `1, 2`, `x = 1 \text{ or } x = 2`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from verifiers.maths.brackets import split_outer
from verifiers.maths.expressions import Unreadable
from verifiers.maths.lexer import Token

MAX_ITEMS = 200

Separator = Literal[",", "and", "or"]
_WORDS: dict[str, Separator] = {
    "and": "and", "or": "or", "for": ",", "where": ",", "with": ",",
}  # fmt: skip


def split_list(tokens: Sequence[Token]) -> tuple[list[list[Token]], Separator] | None:
    """The items of a list with what stands between them; None for tokens that are no list.

    Raises:
        Unreadable: An item before the last is empty, or there are too many.
    """
    for separator in ("or", ",", "and"):  # from the loosest
        pieces = split_outer(tokens, lambda t, separator=separator: _separates(t) == separator)
        if len(pieces) > 1:
            return _trim(pieces), separator
    return None


def split_items(tokens: Sequence[Token]) -> list[list[Token]]:
    """What stands between commas, as in a tuple.

    Raises:
        Unreadable: An item before the last is empty, or there are too many.
    """
    pieces = split_outer(tokens, _is_comma)
    if len(pieces) > MAX_ITEMS:
        raise Unreadable("too many items")
    return pieces


def _trim(pieces: list[list[Token]]) -> list[list[Token]]:
    """The pieces without a separator that ends the list or begins its last item."""
    if not pieces[-1]:
        pieces = pieces[:-1]
    if len(pieces) > MAX_ITEMS:
        raise Unreadable("too many items")
    *before, last = pieces
    return [*before, last[1:]] if _separates(last[0]) else pieces  # `4, 9, and 11`


def _separates(token: Token) -> Separator | None:
    if _is_comma(token):
        return ","
    if token.kind == "text":
        return _WORDS.get(token.text.lower().strip(" ,"))
    if token.kind == "command" and token.text in ("lor", "vee"):
        return "or"
    return "and" if token.kind == "command" and token.text in ("land", "wedge") else None


def _is_comma(token: Token) -> bool:
    return token.kind == "mark" and token.text in (",", ";")
