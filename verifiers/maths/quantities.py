"""From tokens to a number or formula with the unit, currency or multiplier written beside it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from verifiers.maths.answers import Answer, Collection, Quantity
from verifiers.maths.expressions import Apply, Expression, Number, Unreadable, expand_signs
from verifiers.maths.lexer import Token
from verifiers.maths.parser import parse_expression
from verifiers.maths.units import DEGREE, Unit, convert, is_plain_word, is_symbol, read_unit

CURRENCIES = {
    "$": "dollar", "pounds": "sterling", "euro": "euro", "yen": "yen", "rupee": "rupee",
}  # fmt: skip
UNIT_COMMANDS = {"cdot": " ", "times": " ", "mu": " µ", "Omega": " ohm", "AA": " angstrom"}
_JOINED = re.compile(r"(?:\s*(?:,|\band))+\s*$")


def read_quantity(tokens: list[Token], letters_are_units: bool) -> Answer:
    """A quantity; two of them where a plus-minus stands in it.

    Args:
        tokens: At least one.
        letters_are_units: As for `read_answer`.

    Raises:
        Unreadable: They are none.
    """
    if amount := _read_mixed(tokens, letters_are_units):
        return amount
    unit, tokens = _take_currency(tokens)
    multiplier = 1
    place = _find_unit(tokens, letters_are_units)
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


def add_amounts(items: Sequence[Answer]) -> Quantity | None:
    r"""The sum of amounts in ever smaller units, as `5 \text{ ft}, 3 \text{ in}`.

    None for any other list: an amount that fills the unit before it belongs to a list.
    """
    total = Fraction(0)
    size, before = Fraction(1), None
    for item in items:
        match item:
            case Quantity(Number(value), Unit() as unit):
                pass
            case _:
                return None
        if before is not None:
            conversion = convert(unit, before) if unit != before else None
            if conversion is None or conversion.offset or not 0 <= value * conversion.scale < 1:
                return None
            size *= conversion.scale
        total, before = total + value * size, unit
    first = items[0]
    return Quantity(Number(total), first.unit) if isinstance(first, Quantity) else None


def _read_mixed(tokens: Sequence[Token], letters_are_units: bool) -> Quantity | None:
    r"""`1 \text{ hour } 30 \text{ minutes}`."""
    starts = [
        place
        for place, token in enumerate(tokens)
        if place == 0 or (token.kind == "number" and tokens[place - 1].kind == "text")
    ]
    if len(starts) < 2 or any(tokens[place].kind != "number" for place in starts):
        return None
    ends = [*starts[1:], len(tokens)]
    pieces = [_without_joiner(tokens[a:b]) for a, b in zip(starts, ends, strict=True)]
    return add_amounts([read_quantity(piece, letters_are_units) for piece in pieces])


def _without_joiner(tokens: Sequence[Token]) -> list[Token]:
    r"""Without the word at the end of `5 \text{ feet and }`."""
    *start, last = tokens
    text = _JOINED.sub("", last.text) if last.kind == "text" else last.text
    return [*start, Token(last.kind, text, last.spaced, last.number)] if text else start


def _take_currency(tokens: list[Token]) -> tuple[Unit | None, list[Token]]:
    r"""The currency whose sign stands before or after an amount, and the amount: `-\$5`, `5€`."""
    signed = len(tokens) > 1 and tokens[0].text in ("-", "+")
    for place in (int(signed), -1):
        token = tokens[place]
        if token.kind in ("command", "mark") and token.text in CURRENCIES and len(tokens) > 1:
            amount = [*tokens[:place], *tokens[place:][1:]]
            return Unit(((CURRENCIES[token.text], 1),)), amount
    return None, tokens


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
            while start and tokens[start - 1].text in ("{", "frac", "dfrac", "tfrac", "/", "mu"):
                start -= 1
            return start or None
        if (
            token.kind == "letter"
            and (token.spaced or letters_are_units)
            and _ends_number(tokens[:place])
            and _is_unit_symbol(tokens[place:], 1 if letters_are_units and token.spaced else 2)
        ):
            return place
        if token.text == "Omega" and token.spaced and _ends_number(tokens[:place]):
            return place if place == len(tokens) - 1 else None
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
        if token.kind == "command" and token.text in UNIT_COMMANDS:
            text += UNIT_COMMANDS[token.text]
        elif token.kind == "letter":
            text += (" " if token.spaced else "") + token.text
        elif token.kind == "text":
            text += f" {token.text}"
        elif token.kind in ("number", "mark"):
            text += token.text
        else:
            raise Unreadable("a command within a unit")
    text = re.sub(r"µ\s+", "µ", text)
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
