"""What the comparisons ask about an answer's shape, and the forms that they bring it to."""

from __future__ import annotations

from collections.abc import Callable

from verifiers.maths.answers import (
    FLIPPED,
    Answer,
    Collection,
    Matrix,
    Member,
    Operator,
    Quantity,
    Relation,
    Words,
)
from verifiers.maths.equality import difference
from verifiers.maths.exact import evaluate
from verifiers.maths.expressions import Apply, Expression, Symbol, replace_symbol

PARAMETER = Symbol("@parameter")


def only_item(answer: Answer) -> Answer:
    """What a list of one holds; any other answer itself."""
    while isinstance(answer, Collection) and answer.kind == "list" and len(answer.items) == 1:
        answer = answer.items[0]
    return answer


def is_name(answer: Answer) -> bool:
    r"""Whether a side of an equation only says what is given.

    `x`, `f(x)`, `AB`, `\text{area}`, `(x, y)`.
    """
    match answer:
        case Quantity(expression, None):
            return _is_label(expression)
        case Words():
            return True
        case Collection("tuple", items):
            return all(is_name(item) for item in items)
    return False


def _is_label(expression: Expression) -> bool:
    r"""`x`, `f(x)`, `AB`, `|AB|`, `m\angle A`: no sum and no product of variables."""
    match expression:
        case Symbol(name):
            return name not in ("pi", "e", "oo")
        case Apply("abs", (inner,)):
            return isinstance(inner, Apply) and _is_label(inner)
        case Apply("mul", (Symbol("m"), Symbol(name))):
            return name.startswith("angle")
        case Apply("mul", args):
            return all(isinstance(arg, Symbol) and arg.name.isupper() for arg in args)
        case Apply(op, _):
            return op[0] == "@"
    return False


def is_inequality(answer: Answer) -> bool:
    """Whether an answer bounds a variable, or says in which set it is."""
    return isinstance(answer, Member) or (
        isinstance(answer, Relation) and "=" not in answer.operators
    )


def find_integer(answer: Answer) -> int | None:
    """The value of an answer that is a whole number."""
    value = evaluate(answer.expression) if isinstance(answer, Quantity) else None
    return int(value) if value is not None and value.denominator == 1 else None


def rename_parameter(answer: Answer, parameter: str) -> Answer:
    """The answer with its parameter under a name that no answer has."""
    return _map_expressions(answer, lambda e: replace_symbol(e, parameter, PARAMETER))


def _map_expressions(answer: Answer, change: Callable[[Expression], Expression]) -> Answer:
    match answer:
        case Quantity(expression, unit):
            return Quantity(change(expression), unit)
        case Collection(kind, items, joined_by):
            return Collection(kind, tuple(_map_expressions(i, change) for i in items), joined_by)
        case Relation(sides, operators):
            return Relation(tuple(_map_expressions(s, change) for s in sides), operators)
    return answer


def with_constant_of(gold: Quantity, prediction: Quantity) -> Quantity:
    """The prediction with its constant of integration named as in the reference: `+K` to `+C`."""
    wanted, found = _constants(gold.expression), _constants(prediction.expression)
    if len(wanted) != 1 or len(found) != 1 or wanted == found:
        return prediction
    changed = replace_symbol(prediction.expression, found[0], Symbol(wanted[0]))
    return Quantity(changed, prediction.unit)


def _constants(expression: Expression) -> list[str]:
    terms = expression.args if isinstance(expression, Apply) and expression.op == "add" else ()
    return [t.name for t in terms if isinstance(t, Symbol) and t.name in ("C", "K", "c", "k")]


def find_vector_items(matrix: Matrix) -> tuple[Answer, ...] | None:
    """The entries of a matrix of one row or one column."""
    if len(matrix.rows) == 1:
        return tuple(Quantity(e) for e in matrix.rows[0])
    if all(len(row) == 1 for row in matrix.rows):
        return tuple(Quantity(row[0]) for row in matrix.rows)
    return None


def find_zero_form(relation: Relation) -> Expression | None:
    """`left - right` of a relation with two sides."""
    match relation.sides:
        case (Quantity(left, None), Quantity(right, None)):
            return difference(left, right)
    return None


def upwards(answer: Answer) -> Answer:
    r"""A chain that descends, as `c \ge b \ge a`, read from its other end."""
    if not isinstance(answer, Relation) or len(answer.operators) < 2:
        return answer
    if not set(answer.operators) <= {">", ">="}:
        return answer
    operators: tuple[Operator, ...] = tuple(
        FLIPPED[operator] for operator in reversed(answer.operators)
    )
    return Relation(answer.sides[::-1], operators)
