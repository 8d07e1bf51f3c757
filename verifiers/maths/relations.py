r"""The sides of a relation, as tokens part into them: `1 < x \le 2`, `x \equiv 3 \pmod 7`."""

from __future__ import annotations

from collections.abc import Sequence

from verifiers.maths.answers import Congruence, Operator
from verifiers.maths.brackets import find_levels, split_at_command
from verifiers.maths.expressions import Unreadable
from verifiers.maths.lexer import Token
from verifiers.maths.parser import parse_expression

OPERATORS: dict[str, Operator] = {
    "=": "=", "<": "<", ">": ">", "lt": "<", "gt": ">", "le": "<=", "leq": "<=", "leqslant": "<=",
    "ge": ">=", "geq": ">=", "geqslant": ">=", "ne": "!=", "neq": "!=", "approx": "=",
}  # fmt: skip
MODULO = ("pmod", "mod", "bmod")


def find_operator(token: Token) -> Operator | None:
    """The relation that a token stands for."""
    return OPERATORS.get(token.text) if token.kind in ("mark", "command") else None


def split_relation(tokens: Sequence[Token]) -> tuple[list[list[Token]], tuple[Operator, ...]]:
    """The sides of a relation with the operators between them.

    Raises:
        Unreadable: A side is empty, or a `not` stands before anything but an equals sign.
    """
    operators: list[Operator] = []
    sides: list[list[Token]] = [[]]
    negated = False
    for token, level in find_levels(tokens):
        operator = find_operator(token) if level == 0 else None
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
    return sides, tuple(operators)


def read_congruence(tokens: Sequence[Token]) -> Congruence:
    r"""A congruence, its modulus with or without parentheses.

    Raises:
        Unreadable: It has no modulus, or other than two sides, or a side is no expression.
    """
    left, *others = split_at_command(tokens, "equiv")
    if len(others) != 1:
        raise Unreadable("a chain of congruences")
    (right,) = others
    for place, token in enumerate(right):
        if token.kind in ("command", "text") and token.text.strip() in MODULO:
            residue, modulus = right[:place], right[place + 1 :]
            break
    else:
        raise Unreadable("a congruence without a modulus")
    if residue and modulus and (residue[-1].text, modulus[-1].text) == ("(", ")"):
        residue, modulus = residue[:-1], modulus[:-1]
    return Congruence(parse_expression(left), parse_expression(residue), parse_expression(modulus))
