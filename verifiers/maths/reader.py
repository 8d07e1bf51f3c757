"""From an answer's text to a typed answer."""

from __future__ import annotations

import re
from collections.abc import Sequence

from verifiers.maths.answers import (
    Answer,
    Collection,
    Family,
    Interval,
    Member,
    NamedSet,
    Quantity,
    Ratio,
    Relation,
    Union,
    Without,
    Words,
)
from verifiers.maths.brackets import closes, find_outer, opens, split_at_command, split_outer
from verifiers.maths.cleanup import clean
from verifiers.maths.expressions import Expression, Symbol, Unreadable
from verifiers.maths.families import write_membership
from verifiers.maths.forms import read_form
from verifiers.maths.lexer import Token, tokenize
from verifiers.maths.lists import flatten, share_name
from verifiers.maths.named_sets import ALL_REALS, SETS, names_set, read_named_set
from verifiers.maths.parser import parse_expression
from verifiers.maths.quantities import add_amounts, read_quantity
from verifiers.maths.relations import find_operator, read_congruence, split_relation
from verifiers.maths.separators import Separator, split_items, split_list
from verifiers.maths.vocabulary import ROUNDING
from verifiers.maths.words import normalize_words

QUALIFIERS = re.compile(r"(?:,\s*)?(?:for|where|with) (?:any|all|every|some|each)\b.*")
_LABEL = re.compile(r"(?!.*\bnot\b)[A-Za-z ]{1,30}:|[Aa]ns\.")
_PLAIN_WORDS = re.compile(r"[A-Za-z][A-Za-z' .-]*")
_DATE = re.compile(
    r"(?:\\text\s*\{)?\s*(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}\.?\s*\}?\s*"
    r"\d{1,2}(?:,?\s*\d{4})?\s*\}?",
    re.IGNORECASE,
)
# `P(A \cap B) = ...`: what is asked for, in signs of its own.
_PROBABILITY = re.compile(
    r"(?:P|\\Pr|\\mathbb\{[PE]\}|E)\s*[(\[][^=()\[\]]*[)\]]\s*=(?P<value>[^=]+)"
)
_LONG_RUN = re.compile(r"[A-Za-z]{3,}")


def read_answer(text: str, *, letters_are_units: bool = False) -> Answer:
    """Read a whole answer.

    Args:
        text: The answer as written.
        letters_are_units: Whether single letters after a number and a space, as in `5 m`, are a
            unit; otherwise they are variables.

    Raises:
        Unreadable: It is not, from its first to its last character, an answer of a known kind.
    """
    try:
        return _read_clean(clean(text), letters_are_units)
    except RecursionError:
        raise Unreadable("nested too deeply") from None


def _read_clean(text: str, letters_are_units: bool) -> Answer:
    if not text:
        raise Unreadable("empty")
    text = write_membership(text)
    if (answer := read_form(text)) is not None:
        return answer
    if match := _PROBABILITY.fullmatch(text):
        value = _read_clean(match["value"], letters_are_units)
        return Relation((Words("probability"), value), ("=",))
    if _DATE.fullmatch(text):
        return Words(normalize_words(text))
    if _PLAIN_WORDS.fullmatch(text) and _LONG_RUN.search(text) and _is_prose(text):
        return _read_words(text)
    return _Reader(tokenize(text), letters_are_units).read()


def _is_prose(text: str) -> bool:
    """Whether letters are a word; names of functions and constants are not."""
    return any(token.kind == "letter" for token in tokenize(text))


def _read_words(text: str) -> Answer:
    words = normalize_words(text)
    return SETS["R"] if words in ALL_REALS else Words(words)


class _Reader:
    """Reads a list of tokens as an answer, from the loosest to the tightest connection."""

    def __init__(self, tokens: Sequence[Token], letters_are_units: bool) -> None:
        self.tokens = _without_qualifier(tokens)
        self.letters_are_units = letters_are_units
        if not self.tokens:
            raise Unreadable("empty")

    def within(self, tokens: Sequence[Token]) -> _Reader:
        return _Reader(tokens, self.letters_are_units)

    def read(self) -> Answer:
        first = self.tokens[0]
        if first.kind == "text" and len(self.tokens) > 1 and _LABEL.fullmatch(first.text):
            return self.within(self.tokens[1:]).read()
        if all(token.kind == "text" for token in self.tokens):
            return _read_words(" ".join(token.text for token in self.tokens))
        if split := split_list(self.tokens):
            return self.read_list(*split)
        return self.read_single()

    def read_list(self, pieces: list[list[Token]], joined_by: Separator) -> Answer:
        items = [self.within(piece).read() for piece in pieces]
        if len(items) == 2 and isinstance(items[1], Member) and items[1].values == SETS["Z"]:
            if not isinstance(items[1].name, Symbol):
                raise Unreadable("not a parameter")
            return Family(items[0], items[1].name.name)
        if joined_by != "or" and (amount := add_amounts(items)):
            return amount
        return Collection("list", tuple(flatten(share_name(items))), joined_by)

    def read_single(self) -> Answer:  # noqa: PLR0911 - one case for each kind
        tokens = self.tokens
        if len(members := split_at_command(tokens, "in")) > 1:
            left, *rest = members
            if len(rest) != 1:
                raise Unreadable("several memberships")
            return Member(parse_expression(left), self.within(rest[0]).read())
        if len(split_at_command(tokens, "equiv")) > 1:
            return read_congruence(tokens)
        if any(find_operator(token) for token in find_outer(tokens)):
            sides, operators = split_relation(tokens)
            return Relation(tuple(self.within(side).read() for side in sides), operators)
        if len(sets := split_at_command(tokens, "setminus", "backslash")) > 1:
            whole, *rest = sets
            if len(rest) != 1:
                raise Unreadable("several set differences")
            return Without(self.within(whole).read(), self.within(rest[0]).read())
        if len(parts := split_at_command(tokens, "cup")) > 1:
            return Union(tuple(self.within(part).read() for part in parts))
        if len(parts := split_outer(tokens, _is_colon)) > 1:
            return Ratio(tuple(parse_expression(part) for part in parts))
        if names_set(tokens[0]):
            return read_named_set(tokens)
        return self.read_bracketed() or read_quantity(tokens, self.letters_are_units)

    def read_bracketed(self) -> Answer | None:  # noqa: PLR0911 - one case for each bracket
        """A tuple, set or interval, when one pair of brackets holds everything."""
        first, last = self.tokens[0], self.tokens[-1]
        one_pair = opens(first) and closes(last) and len(find_outer(self.tokens)) == 2
        if not one_pair or first.text in ROUNDING:
            return None
        inner = self.tokens[1:-1]
        opening, closing = first.text, last.text
        if (opening, closing) == ("{", "}") and first.kind == "command":
            if not inner:
                return NamedSet("empty")
            if condition := _find_condition(inner):
                return self.within(condition).read()
            answer = self.within(inner).read()
            items = answer.items if isinstance(answer, Collection) else (answer,)
            return Collection("set", tuple(flatten(items)))
        if (opening, closing) == ("{", "}"):
            return self.within(inner).read()
        if (opening, closing) == ("langle", "rangle"):
            return Collection("tuple", self.items_of(inner))
        items = self.items_of(inner)
        if (opening, closing) == ("(", ")"):
            return Collection("tuple", items) if len(items) > 1 else self.within(inner).read()
        if len(items) == 2:
            left, right = (_expression_of(item) for item in items)
            return Interval(left, right, opening == "[", closing == "]")
        if (opening, closing) == ("[", "]"):
            return Collection("tuple", items) if len(items) > 1 else self.within(inner).read()
        raise Unreadable("brackets of different kinds")

    def items_of(self, inner: list[Token]) -> tuple[Answer, ...]:
        return tuple(self.within(piece).read() for piece in split_items(inner))


def _is_colon(token: Token) -> bool:
    if token.kind == "text":
        return token.text.lower() == "to"
    return (token.kind, token.text) in (("mark", ":"), ("command", "colon"))


def _without_qualifier(tokens: Sequence[Token]) -> list[Token]:
    tokens = list(tokens)
    for place, token in enumerate(tokens):
        if place and token.kind == "text" and QUALIFIERS.fullmatch(token.text):
            return tokens[:place]
    return tokens


def _find_condition(tokens: Sequence[Token]) -> list[Token] | None:
    r"""What follows `x \mid` or `x :` in a set's description."""
    name, *rest = tokens
    if name.kind != "letter" or not rest:
        return None
    if [token.text for token in rest[:5]] == ["in", "mathbb", "{", "R", "}"]:
        rest = rest[5:]
    bar = rest[0].text if rest else ""
    return rest[1:] or None if bar in ("mid", "|", ":", "colon") else None


def _expression_of(answer: Answer) -> Expression:
    if isinstance(answer, Quantity) and answer.unit is None:
        return answer.expression
    raise Unreadable("an interval's end is not a number")
