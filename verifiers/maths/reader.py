"""From an answer's text to a typed answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from verifiers.maths.answers import (
    Answer,
    Collection,
    Congruence,
    Family,
    Interval,
    Member,
    NamedSet,
    Operator,
    Quantity,
    Ratio,
    Relation,
    Union,
    Without,
    Words,
)
from verifiers.maths.brackets import (
    closes,
    find_levels,
    find_outer,
    opens,
    split_at_command,
    split_outer,
)
from verifiers.maths.cleanup import clean
from verifiers.maths.expressions import (
    Expression,
    Symbol,
    Unreadable,
    find_symbols,
)
from verifiers.maths.families import write_membership
from verifiers.maths.forms import read_form
from verifiers.maths.lexer import Token, tokenize
from verifiers.maths.parser import parse_expression
from verifiers.maths.quantities import add_amounts, read_quantity
from verifiers.maths.vocabulary import ROUNDING
from verifiers.maths.words import normalize_words

OPERATORS: dict[str, Operator] = {
    "=": "=", "<": "<", ">": ">", "lt": "<", "gt": ">", "le": "<=", "leq": "<=", "leqslant": "<=",
    "ge": ">=", "geq": ">=", "geqslant": ">=", "ne": "!=", "neq": "!=", "approx": "=",
}  # fmt: skip
SETS: dict[str, NamedSet] = {
    "R": NamedSet("reals"),
    "Z": NamedSet("integers"),
    "N": NamedSet("naturals"),
    "Q": NamedSet("rationals"),
    "C": NamedSet("complex"),
}
ALL_REALS = frozenset({"all real numbers", "all reals", "all real", "set of real numbers"})
QUALIFIERS = re.compile(r"(?:,\s*)?(?:for|where|with) (?:any|all|every|some|each)\b.*")
_LABEL = re.compile(r"(?!.*\bnot\b)[A-Za-z ]{1,30}:|[Aa]ns\.")
MODULO = ("pmod", "mod", "bmod")
MAX_ITEMS = 200

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
Splitter = Literal[",", "and", "or"]
_JOINING_WORDS: dict[str, Splitter] = {
    "and": "and", "or": "or", "for": ",", "where": ",", "with": ",",
}  # fmt: skip


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
        for joiner in ("or", ",", "and"):
            pieces = split_outer(self.tokens, lambda t, joiner=joiner: _joins(t) == joiner)
            if len(pieces) > 1:
                return self.read_list(pieces, joiner)
        return self.read_single()

    def read_list(self, pieces: list[list[Token]], joiner: Splitter) -> Answer:
        if not pieces[-1]:
            pieces.pop()
        if len(pieces) > MAX_ITEMS:
            raise Unreadable("too many items")
        if _joins(pieces[-1][0]) is not None:  # `4, 9, and 11`
            pieces[-1] = pieces[-1][1:]
        items = [self.within(piece).read() for piece in pieces]
        if len(items) == 2 and isinstance(items[1], Member) and items[1].values == SETS["Z"]:
            if not isinstance(items[1].name, Symbol):
                raise Unreadable("not a parameter")
            return Family(items[0], items[1].name.name)
        if joiner != "or" and (amount := add_amounts(items)):
            return amount
        return Collection("list", tuple(_flatten(_share_name(items))), joiner)

    def read_single(self) -> Answer:  # noqa: PLR0911 - one case for each kind
        tokens = self.tokens
        if len(members := split_at_command(tokens, "in")) > 1:
            left, *rest = members
            if len(rest) != 1:
                raise Unreadable("several memberships")
            return Member(parse_expression(left), self.within(rest[0]).read())
        if len(split_at_command(tokens, "equiv")) > 1:
            return self.read_congruence()
        if any(_operator(token) for token in find_outer(tokens)):
            return self.read_relation()
        if len(sets := split_at_command(tokens, "setminus", "backslash")) > 1:
            whole, *rest = sets
            if len(rest) != 1:
                raise Unreadable("several set differences")
            return Without(self.within(whole).read(), self.within(rest[0]).read())
        if len(parts := split_at_command(tokens, "cup")) > 1:
            return Union(tuple(self.within(part).read() for part in parts))
        if len(parts := split_outer(tokens, _is_colon)) > 1:
            return Ratio(tuple(parse_expression(part) for part in parts))
        if tokens[0].kind == "command" and tokens[0].text in ("mathbb", "emptyset", "varnothing"):
            return self.read_named_set()
        return self.read_bracketed() or read_quantity(tokens, self.letters_are_units)

    def read_congruence(self) -> Answer:
        left, right = split_at_command(self.tokens, "equiv")
        for place, token in enumerate(right):
            if token.kind in ("command", "text") and token.text.strip() in MODULO:
                residue, modulus = right[:place], right[place + 1 :]
                break
        else:
            raise Unreadable("a congruence without a modulus")
        if residue and residue[-1].text == "(" and modulus[-1].text == ")":
            residue, modulus = residue[:-1], modulus[:-1]
        return Congruence(
            parse_expression(left), parse_expression(residue), parse_expression(modulus)
        )

    def read_relation(self) -> Answer:
        operators: list[Operator] = []
        sides: list[list[Token]] = [[]]
        negated = False
        for token, level in find_levels(self.tokens):
            operator = _operator(token) if level == 0 else None
            if token.kind == "command" and token.text == "not":
                negated = True
            elif operator is None:
                sides[-1].append(token)
            else:
                if negated and operator != "=":
                    raise Unreadable("a negated relation")
                operators.append("!=" if negated else operator)
                negated = False
                sides.append([])
        if negated or not all(sides):
            raise Unreadable("a relation without a side")
        return Relation(tuple(self.within(side).read() for side in sides), tuple(operators))

    def read_named_set(self) -> Answer:
        names = [token.text for token in self.tokens]
        if names in (["emptyset"], ["varnothing"]):
            return NamedSet("empty")
        letters = [name for name in names[1:] if name not in ("{", "}")]
        if names[0] == "mathbb" and len(letters) == 1 and letters[0] in SETS:
            return SETS[letters[0]]
        raise Unreadable("not the name of a set")

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
            return Collection("set", tuple(_flatten(items)))
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
        pieces = split_outer(inner, lambda t: t.kind == "mark" and t.text in (",", ";"))
        if len(pieces) > MAX_ITEMS:
            raise Unreadable("too many items")
        return tuple(self.within(piece).read() for piece in pieces)


def _joins(token: Token) -> Splitter | None:
    if token.kind == "mark" and token.text in (",", ";"):
        return ","
    if token.kind == "text":
        return _JOINING_WORDS.get(token.text.lower().strip(" ,"))
    if token.kind == "command" and token.text in ("lor", "vee"):
        return "or"
    return "and" if token.kind == "command" and token.text in ("land", "wedge") else None


def _is_colon(token: Token) -> bool:
    if token.kind == "text":
        return token.text.lower() == "to"
    return (token.kind, token.text) in (("mark", ":"), ("command", "colon"))


def _operator(token: Token) -> Operator | None:
    return OPERATORS.get(token.text) if token.kind in ("mark", "command") else None


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


def _share_name(items: list[Answer]) -> list[Answer]:
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


def _is_name(answer: Answer) -> bool:
    return isinstance(answer, Quantity) and isinstance(answer.expression, Symbol)


def _flatten(items: Sequence[Answer]) -> list[Answer]:
    """A plus-minus within a list stands for two of its items."""
    flat: list[Answer] = []
    for item in items:
        if isinstance(item, Collection) and item.kind == "list":
            flat.extend(item.items)
        else:
            flat.append(item)
    return flat


def _expression_of(answer: Answer) -> Expression:
    if isinstance(answer, Quantity) and answer.unit is None:
        return answer.expression
    raise Unreadable("an interval's end is not a number")
