"""What kind of answer a reference is, in a word or two for a person."""

from __future__ import annotations

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
    Quantity,
    Ratio,
    Relation,
    Union,
    Without,
    Words,
)
from verifiers.maths.exact import TooCostly, evaluate
from verifiers.maths.expressions import (
    Apply,
    Expression,
    Number,
    Symbol,
    Unreadable,
    find_symbols,
    walk,
)
from verifiers.maths.formulas import needs_sympy
from verifiers.maths.reader import read_answer

_KINDS: dict[type[Answer], str] = {
    BaseNumber: "number in a base",
    Choice: "choice",
    Clock: "clock time",
    Congruence: "congruence",
    Family: "parametric family",
    Interval: "interval",
    Matrix: "matrix",
    Member: "membership",
    NamedSet: "named set",
    Ratio: "ratio",
    Union: "union",
    Without: "difference of sets",
    Words: "text",
}


def name_kind(reference: str) -> str:
    r"""The kind of a reference, as `integer`, `interval` or `expression`.

    Example:
        >>> name_kind(r"\frac{3}{4}")
        'rational'
    """
    try:
        answer = read_answer(reference)
    except Unreadable:
        return "calculus" if needs_sympy(reference) else "unreadable"
    match answer:
        case Quantity():
            return _name_quantity(answer)
        case Collection():
            return answer.kind
        case Relation():
            return "equation" if set(answer.operators) == {"="} else "inequality"
    return _KINDS[type(answer)]


def _name_quantity(answer: Quantity) -> str:
    if answer.unit is not None:
        return "quantity with a unit"
    expression = answer.expression
    if isinstance(expression, Apply) and expression.op == "percent":
        return "percent"
    if find_symbols(expression):
        return "expression"
    if any(node == Symbol("i") for node in walk(expression)):
        return "complex"
    return _name_number(expression)


def _name_number(expression: Expression) -> str:
    if any(isinstance(node, Number) and node.places is not None for node in walk(expression)):
        return "decimal"
    try:
        value = evaluate(expression)
    except TooCostly:
        return "closed form"
    if value is None:
        return "closed form"
    return "integer" if value.denominator == 1 else "rational"
