"""Which tokens stand outside of all brackets, and where they part a list of tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from verifiers.maths.expressions import Unreadable
from verifiers.maths.lexer import Token


def opens(token: Token) -> bool:
    """Whether a token is an opening bracket."""
    if token.kind == "command":
        return token.text in ("{", "langle", "lfloor", "lceil")
    return token.kind == "mark" and token.text in ("(", "[", "{")


def closes(token: Token) -> bool:
    """Whether a token is a closing bracket."""
    if token.kind == "command":
        return token.text in ("}", "rangle", "rfloor", "rceil")
    return token.kind == "mark" and token.text in (")", "]", "}")


def find_levels(tokens: Sequence[Token]) -> list[tuple[Token, int]]:
    """Each token with the number of brackets round it; a bracket itself counts as outside.

    Raises:
        Unreadable: Brackets do not pair.
    """
    result = []
    level = 0
    for token in tokens:
        if closes(token):
            level -= 1
        if level < 0:
            raise Unreadable("a bracket closes that was not opened")
        result.append((token, level))
        if opens(token):
            level += 1
    if level:
        raise Unreadable("a bracket stays open")
    return result


def find_outer(tokens: Sequence[Token]) -> list[Token]:
    """The tokens outside of all brackets, and the outermost brackets."""
    return [token for token, level in find_levels(tokens) if level == 0]


def split_outer(tokens: Sequence[Token], separates: Callable[[Token], bool]) -> list[list[Token]]:
    """The pieces between separators that stand outside of all brackets.

    Raises:
        Unreadable: A piece before a separator is empty.
    """
    pieces: list[list[Token]] = [[]]
    for token, level in find_levels(tokens):
        if level == 0 and separates(token):
            pieces.append([])
        else:
            pieces[-1].append(token)
    if len(pieces) > 1 and not all(pieces[:-1]):
        raise Unreadable("nothing before a separator")
    return pieces


def split_at_command(tokens: Sequence[Token], *names: str) -> list[list[Token]]:
    """As `split_outer`, at commands of these names."""
    return split_outer(tokens, lambda token: token.kind == "command" and token.text in names)
