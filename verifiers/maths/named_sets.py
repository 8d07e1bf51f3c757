r"""Sets of numbers that go by a name: `\mathbb{R}`, `\emptyset`, all real numbers."""

from __future__ import annotations

from collections.abc import Sequence

from verifiers.maths.answers import NamedSet
from verifiers.maths.expressions import Unreadable
from verifiers.maths.lexer import Token

SETS: dict[str, NamedSet] = {
    "R": NamedSet("reals"),
    "Z": NamedSet("integers"),
    "N": NamedSet("naturals"),
    "Q": NamedSet("rationals"),
    "C": NamedSet("complex"),
}
ALL_REALS = frozenset({"all real numbers", "all reals", "all real", "set of real numbers"})


def names_set(token: Token) -> bool:
    """Whether a token begins the name of a set."""
    return token.kind == "command" and token.text in ("mathbb", "emptyset", "varnothing")


def read_named_set(tokens: Sequence[Token]) -> NamedSet:
    """The set that tokens name.

    Raises:
        Unreadable: They name none that is known here.
    """
    names = [token.text for token in tokens]
    if names in (["emptyset"], ["varnothing"]):
        return NamedSet("empty")
    letters = [name for name in names[1:] if name not in ("{", "}")]
    if names[0] == "mathbb" and len(letters) == 1 and letters[0] in SETS:
        return SETS[letters[0]]
    raise Unreadable("not the name of a set")
