"""Single quantities: value, unit, percent, precision.

And whether the answer was worked out at all.
"""

from __future__ import annotations

from fractions import Fraction

from verifiers.maths.answers import Quantity
from verifiers.maths.equality import Equality, float_value
from verifiers.maths.exact import evaluate
from verifiers.maths.expressions import Apply, Expression, Number, Symbol, find_symbols, walk
from verifiers.maths.options import MathOptions
from verifiers.maths.units import DEGREE, RADIAN, Conversion, convert
from verifiers.verdict import Reason

MIN_GOLD_DIGITS = 2
# A decimal this long that agrees in every digit was computed from the exact value.
LONG_DECIMAL_DIGITS = 10
_ROUNDING_PLACES = 15

Result = tuple[bool | None, Reason]


def same_quantity(
    gold: Quantity, prediction: Quantity, options: MathOptions, equality: Equality
) -> Result:
    """Whether two quantities are equal, and why.

    Raises:
        TooCostly: Exact arithmetic would need too large numbers.
    """
    wants_value = _is_literal(gold.expression) and not options.allow_unevaluated
    if wants_value and _is_unevaluated(prediction.expression):
        return False, Reason.UNEVALUATED
    if options.degree_bridge:
        gold, prediction = _in_radians(gold, prediction)
    conversion = convert(
        prediction.unit,
        gold.unit,
        missing_is_same=options.unit_bridge,
        change=options.unit_conversion,
    )
    if conversion is None:
        return False, Reason.DIFFERENT
    expression = _change(prediction.expression, conversion)
    result = _same_value(gold.expression, expression, options, equality)
    if result[0] is not False:
        return result
    for bridged in _bridges(gold, prediction, options):
        other = _same_value(bridged, expression, options, equality)
        if other[0] is not False:
            return other
    return result


def _bridges(gold: Quantity, prediction: Quantity, options: MathOptions) -> list[Expression]:
    """Other values that the reference also stands for."""
    match gold.expression, prediction.expression:
        case _, Apply("percent"):
            return []
        case Apply("percent", (number,)), _ if options.percent_bridge:
            return [number]
    return []


def _in_radians(gold: Quantity, prediction: Quantity) -> tuple[Quantity, Quantity]:
    """Both angles without a unit, where one is in degrees and the other in radians."""
    if gold.unit == DEGREE and _is_in_radians(prediction):
        return _from_degrees(gold), Quantity(prediction.expression)
    if prediction.unit == DEGREE and _is_in_radians(gold):
        return Quantity(gold.expression), _from_degrees(prediction)
    return gold, prediction


def _is_in_radians(angle: Quantity) -> bool:
    if angle.unit is None:
        return any(node == Symbol("pi") for node in walk(angle.expression))
    return angle.unit == RADIAN


def _from_degrees(angle: Quantity) -> Quantity:
    return Quantity(Apply("degree", (angle.expression,)))


def _change(expression: Expression, conversion: Conversion) -> Expression:
    """The value in another unit."""
    if conversion.scale != 1:
        expression = Apply("mul", (expression, Number(conversion.scale)))
    if conversion.offset:
        expression = Apply("add", (expression, Number(conversion.offset)))
    return expression


def _same_value(
    gold: Expression, prediction: Expression, options: MathOptions, equality: Equality
) -> Result:
    same = equality.same(gold, prediction)
    if same is not False:
        both = evaluate(gold) is not None and evaluate(prediction) is not None
        exact = gold == prediction or both
        return same, Reason.EQUAL_EXACT if exact else Reason.EQUAL_SYMBOLIC
    if find_symbols(gold) or find_symbols(prediction):
        return False, Reason.DIFFERENT
    if _within_tolerance(gold, prediction, options):
        return True, Reason.EQUAL_TOLERANCE
    return False, Reason.DIFFERENT


def _within_tolerance(gold: Expression, prediction: Expression, options: MathOptions) -> bool:
    written, found = _decimal(gold), _decimal(prediction)
    if options.gold_digits and written is not None and written.digits >= MIN_GOLD_DIGITS:
        longer = found is None or (found.places or 0) > (written.places or 0)
        value = evaluate(prediction) if longer else None
        if value is not None and _rounds_to(value, written):
            return True
    if found is None:
        return False
    value = evaluate(gold)
    if found.digits >= LONG_DECIMAL_DIGITS and _agrees(gold, value, found):
        return True
    if not options.rel_tol:
        return False
    number = float(value) if value is not None else float_value(gold)
    return number is not None and abs(float(found.value) - number) <= options.rel_tol * abs(number)


def _rounds_to(value: Fraction, written: Number) -> bool:
    """Whether a value rounds to a decimal at its last written digit, a tie either way."""
    assert written.places is not None
    return abs(value - written.value) <= Fraction(1, 2 * 10**written.places)


def _agrees(gold: Expression, exact: Fraction | None, found: Number) -> bool:
    """Whether a long decimal is the reference, rounded or cut off at its last digit."""
    assert found.places is not None
    unit = Fraction(1, 10**found.places)
    if exact is not None:
        return abs(exact - found.value) < unit
    value = float_value(gold)
    if value is None:
        return False
    noise = Fraction(abs(value)) * Fraction(1, 10**_ROUNDING_PLACES)
    return abs(Fraction(value) - found.value) < unit + noise


def _decimal(expression: Expression) -> Number | None:
    """The literal of a decimal, its sign applied."""
    match expression:
        case Number(places=int()):
            return expression
        case Apply("neg", (Number(value, int() as places, digits),)):
            return Number(-value, places, digits)
    return None


def _is_literal(expression: Expression) -> bool:
    """Whether a reference is a plain number, so that an answer must be worked out to that point."""
    match expression:
        case Number():
            return True
        case Apply("neg" | "percent", (Number(),)):
            return True
        case Apply("div", (upper, lower)):
            return _is_literal(upper) and _is_literal(lower)
    return False


def _is_power(expression: Expression) -> bool:
    match expression:
        case Apply("pow", (base, exponent)):
            return _is_literal(base) and _is_literal(exponent)
    return False


def _is_unevaluated(expression: Expression) -> bool:
    """Whether sums or products of plain numbers were left standing.

    Scientific notation and powers were not.
    """
    match expression:
        case Apply("mul", (_, Apply("pow", (Number(value=base), _)))) if base == 10:
            return False
        case Apply("mul" | "add", args):
            plain = [arg for arg in args if _is_literal(arg) or _is_power(arg)]
            return len(plain) > 1 or any(_is_unevaluated(arg) for arg in args)
        case Apply("div" | "neg" | "percent", args):
            return any(_is_unevaluated(arg) for arg in args)
    return False
