"""From an answer's text to a typed answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Literal

from verifiers.maths.answers import (
    Answer,
    BaseNumber,
    Choice,
    Clock,
    Collection,
    Congruence,
    Family,
    Interval,
    Matrix,
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
from verifiers.maths.cleanup import clean
from verifiers.maths.expressions import (
    Apply,
    Expression,
    Number,
    Symbol,
    Unreadable,
    expand_signs,
    find_symbols,
)
from verifiers.maths.lexer import Token, tokenize
from verifiers.maths.parser import parse_expression
from verifiers.maths.units import DEGREE, Unit, is_plain_word, is_symbol, read_unit
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
QUALIFIERS = re.compile(r"(?:,\s*)?(?:for|where|with) (?:any|all|every|some|each)\b.*")
MAX_ITEMS = 200

_OPEN = r"(?:\\(?:text|textbf|textit|textrm|mathrm|mbox)\s*)?\{?\s*"
_BASE = re.compile(r"([0-9a-zA-Z]+)_\{?(\d{1,2})\}?")
_CLOCK = re.compile(rf"(\d{{1,2}}):([0-5]\d)\s*{_OPEN}(?:([aApP])\.?\s?[mM]\.?)?\s*\}}?")
_CHOICE = re.compile(rf"{_OPEN}\(?\s*([A-J])\s*\)?\s*\}}?")
_PLAIN_WORDS = re.compile(r"[A-Za-z][A-Za-z' .-]*")
_LONG_RUN = re.compile(r"[A-Za-z]{3,}")
_MATRIX = re.compile(
    r"\(?\\begin\{([pbvB]?matrix|array)\}(?:\{[clr|]+\})?(.*)\\end\{\1\}\)?", re.DOTALL
)

Splitter = Literal[",", "and", "or"]


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
    if match := _CHOICE.fullmatch(text):
        return Choice(match[1])
    if match := _BASE.fullmatch(text):
        digits, base = match[1].lower(), int(match[2])
        if digits[0].isdigit() and 2 <= base <= 36 and all(int(d, 36) < base for d in digits):
            return BaseNumber(digits.lstrip("0") or "0", base)
    if match := _CLOCK.fullmatch(text):
        return Clock(int(match[1]), int(match[2]), (match[3] or "").lower())
    if match := _MATRIX.fullmatch(text):
        return _read_matrix(match[2])
    if _PLAIN_WORDS.fullmatch(text) and _LONG_RUN.search(text) and _is_prose(text):
        return Words(normalize_words(text))
    return _Reader(tokenize(text), letters_are_units).read()


def _is_prose(text: str) -> bool:
    """Whether letters are a word; names of functions and constants are not."""
    return any(token.kind == "letter" for token in tokenize(text))


def _read_matrix(body: str) -> Matrix:
    rows = [row for row in re.split(r"\\\\|\\cr(?![a-z])", body) if row.strip()]
    table = tuple(tuple(_read_expression(cell) for cell in row.split("&")) for row in rows)
    if not table or len({len(row) for row in table}) != 1:
        raise Unreadable("rows of different lengths")
    return Matrix(table)


def _read_expression(text: str) -> Expression:
    return parse_expression(tokenize(text))


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
        if all(token.kind == "text" for token in self.tokens):
            return Words(normalize_words(" ".join(token.text for token in self.tokens)))
        for joiner in ("or", ",", "and"):
            pieces = self.split(lambda t, joiner=joiner: _joins(t) == joiner)
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
        return Collection("list", tuple(_flatten(_share_name(items))), joiner)

    def read_single(self) -> Answer:  # noqa: C901, PLR0911 - one case for each kind
        tokens = self.tokens
        if self.contains("in", kind="command"):
            left, *rest = self.split(lambda t: t.kind == "command" and t.text == "in")
            if len(rest) != 1:
                raise Unreadable("several memberships")
            return Member(parse_expression(left), self.within(rest[0]).read())
        if self.contains("equiv", kind="command"):
            return self.read_congruence()
        if any(_operator(token) for token in self.at_top()):
            return self.read_relation()
        for minus in ("setminus", "backslash"):
            if self.contains(minus, kind="command"):
                whole, *rest = self.split(lambda t, m=minus: t.kind == "command" and t.text == m)
                if len(rest) != 1:
                    raise Unreadable("several set differences")
                return Without(self.within(whole).read(), self.within(rest[0]).read())
        if self.contains("cup", kind="command"):
            parts = self.split(lambda t: t.kind == "command" and t.text == "cup")
            return Union(tuple(self.within(part).read() for part in parts))
        if any(_is_colon(token) for token in self.at_top()):
            parts = self.split(_is_colon)
            return Ratio(tuple(parse_expression(part) for part in parts))
        if tokens[0].kind == "command" and tokens[0].text in ("mathbb", "emptyset", "varnothing"):
            return self.read_named_set()
        return self.read_bracketed() or self.read_quantity()

    def read_congruence(self) -> Answer:
        left, right = self.split(lambda t: t.kind == "command" and t.text == "equiv")
        for place, token in enumerate(right):
            if token.kind == "command" and token.text in ("pmod", "mod", "bmod"):
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
        for token, level in self.levels():
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
        if not (_opens(first) and _closes(last)) or len(self.at_top()) != 2:
            return None
        inner = self.tokens[1:-1]
        opening, closing = first.text, last.text
        if (opening, closing) == ("{", "}") and first.kind == "command":
            if not inner:
                return NamedSet("empty")
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
        pieces = self.within(inner).split(lambda t: t.kind == "mark" and t.text in (",", ";"))
        if len(pieces) > MAX_ITEMS:
            raise Unreadable("too many items")
        return tuple(self.within(piece).read() for piece in pieces)

    def read_quantity(self) -> Answer:
        tokens = self.tokens
        multiplier = 1
        unit: Unit | None = None
        if tokens[0].kind == "command" and tokens[0].text in ("$", "pounds"):
            unit, tokens = Unit((("dollar", 1),)), tokens[1:]
        place = _find_unit(tokens, self.letters_are_units)
        if place:
            found = read_unit(_unit_text(tokens[place:]))
            if found is None or (unit is not None and found[0] not in (None, unit)):
                raise Unreadable("text after the number")
            unit, multiplier = found[0] or unit, found[1]
            tokens = tokens[:place]
        expressions = expand_signs(parse_expression(tokens))
        if multiplier != 1:
            expressions = tuple(_scale(e, multiplier) for e in expressions)
        quantities = tuple(_lift_degree(e, unit) for e in expressions)
        return quantities[0] if len(quantities) == 1 else Collection("list", quantities)

    def levels(self) -> list[tuple[Token, int]]:
        """Each token with the number of brackets round it; a bracket itself counts as outside."""
        result = []
        level = 0
        for token in self.tokens:
            if _closes(token):
                level -= 1
            if level < 0:
                raise Unreadable("a bracket closes that was not opened")
            result.append((token, level))
            if _opens(token):
                level += 1
        if level:
            raise Unreadable("a bracket stays open")
        return result

    def at_top(self) -> list[Token]:
        return [token for token, level in self.levels() if level == 0]

    def contains(self, text: str, kind: str) -> bool:
        return any(token.kind == kind and token.text == text for token in self.at_top())

    def split(self, separates: Callable[[Token], bool]) -> list[list[Token]]:
        pieces: list[list[Token]] = [[]]
        for token, level in self.levels():
            if level == 0 and separates(token):
                pieces.append([])
            else:
                pieces[-1].append(token)
        if len(pieces) > 1 and not all(pieces[:-1]):
            raise Unreadable("nothing before a separator")
        return pieces


def _opens(token: Token) -> bool:
    if token.kind == "command":
        return token.text in ("{", "langle", "lfloor", "lceil")
    return token.kind == "mark" and token.text in ("(", "[", "{")


def _closes(token: Token) -> bool:
    if token.kind == "command":
        return token.text in ("}", "rangle", "rfloor", "rceil")
    return token.kind == "mark" and token.text in (")", "]", "}")


def _joins(token: Token) -> Splitter | None:
    if token.kind == "mark" and token.text in (",", ";"):
        return ","
    if token.kind == "text":
        text = token.text.lower().strip(" ,")
        return "and" if text == "and" else "or" if text == "or" else None
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


def _find_unit(tokens: Sequence[Token], letters_are_units: bool) -> int | None:
    """Where the unit begins: text after a number or formula.

    Or letters after a number and a space.
    """
    for place, token in enumerate(tokens):
        if not place:
            continue
        if token.kind == "text":
            # `\frac{\text{m}}{\text{s}}` has its text inside a fraction
            start = place
            while start and tokens[start - 1].text in ("{", "frac", "dfrac", "tfrac", "/"):
                start -= 1
            return start or None
        if (
            token.kind == "letter"
            and token.spaced
            and _ends_number(tokens[:place])
            and _is_unit_symbol(tokens[place:], 1 if letters_are_units else 2)
        ):
            return place
        if (
            token.kind == "command"
            and token.text in ("frac", "dfrac", "tfrac")
            and place + 2 < len(tokens)
            and tokens[place + 2].kind in ("text", "letter")
            and token.spaced
            and tokens[place - 1].kind == "number"
            and _is_unit_fraction(tokens[place:])
        ):
            return place
    return None


def _ends_number(tokens: Sequence[Token]) -> bool:
    """Whether the tokens end with a number that is not an exponent or a subscript."""
    return tokens[-1].kind == "number" and not (len(tokens) > 1 and tokens[-2].text in ("^", "_"))


def _is_unit_symbol(tokens: Sequence[Token], min_letters: int) -> bool:
    """Whether letters stand for a unit: a known symbol with a power, or a word such as `apples`."""
    letters = "".join(token.text for token in tokens if token.kind == "letter")
    power = "".join(token.text for token in tokens if token.kind != "letter")
    if is_symbol(letters):
        return len(letters) >= min_letters and bool(re.fullmatch(r"(?:\^\{?\d\}?)?", power))
    return not power and is_plain_word(letters)


def _is_unit_fraction(tokens: Sequence[Token]) -> bool:
    return bool(
        re.fullmatch(
            r"(?:frac|dfrac|tfrac)\{[a-z]{1,2}\}\{[a-z]{1,2}\}", "".join(t.text for t in tokens)
        )
    )


def _unit_text(tokens: Sequence[Token]) -> str:
    text = ""
    for token in tokens:
        if token.kind == "command" and token.text in ("frac", "dfrac", "tfrac"):
            continue
        if token.kind == "letter":
            text += (" " if token.spaced else "") + token.text
        elif token.kind == "text":
            text += f" {token.text}"
        elif token.kind in ("number", "mark"):
            text += token.text
        else:
            raise Unreadable("a command within a unit")
    return re.sub(r"^\s*\{([^{}]*)\}\{([^{}]*)\}$", r"\1 / \2", text)


def _scale(expression: Expression, multiplier: int) -> Expression:
    if isinstance(expression, Number):
        return Number(expression.value * multiplier)
    return Apply("mul", (expression, Number(Fraction(multiplier))))


def _lift_degree(expression: Expression, unit: Unit | None) -> Quantity:
    if isinstance(expression, Apply) and expression.op == "degree" and unit is None:
        return Quantity(expression.args[0], DEGREE)
    if (
        isinstance(expression, Apply)
        and expression.op == "neg"
        and isinstance(inner := expression.args[0], Apply)
        and inner.op == "degree"
    ):
        return Quantity(Apply("neg", inner.args), DEGREE)
    return Quantity(expression, unit)


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
