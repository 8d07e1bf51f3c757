"""A place in a list of tokens, from which a reader looks ahead and goes on."""

from __future__ import annotations

from collections.abc import Sequence

from verifiers.maths.expressions import Unreadable
from verifiers.maths.lexer import Token


class Cursor:
    """Reads from `tokens[place]`."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = list(tokens)
        self.place = 0

    def peek(self, offset: int = 0) -> Token | None:
        """The token so many places ahead; None beyond the last."""
        place = self.place + offset
        return self.tokens[place] if place < len(self.tokens) else None

    def next(self) -> Token:
        """The next token, which is then behind.

        Raises:
            Unreadable: There is none.
        """
        token = self.peek()
        if token is None:
            raise Unreadable("ends too early")
        self.place += 1
        return token

    def at(self, *texts: str, kind: str = "mark", offset: int = 0) -> bool:
        """Whether one of these stands so many places ahead."""
        token = self.peek(offset)
        return token is not None and token.kind == kind and token.text in texts

    def take(self, *texts: str, kind: str = "mark") -> bool:
        """Whether one of these comes next; then it is behind."""
        found = self.at(*texts, kind=kind)
        self.place += found
        return found

    def expect(self, text: str, kind: str = "mark") -> None:
        """Pass over a token that must come next.

        Raises:
            Unreadable: Another does.
        """
        if not self.take(text, kind=kind):
            raise Unreadable(f"{text!r} is missing")
