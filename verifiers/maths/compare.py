"""The comparison that the reference's kind of answer asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from verifiers.maths.answers import (
    Answer,
    BaseNumber,
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
)
from verifiers.maths.bounds import compare_bounds
from verifiers.maths.equality import Equality
from verifiers.maths.exact import evaluate
from verifiers.maths.expressions import Apply, Expression, Symbol
from verifiers.maths.finding import MISMATCH, Finding, join_findings
from verifiers.maths.items import compare_ordered, compare_unordered, find_distinct
from verifiers.maths.options import MathOptions
from verifiers.maths.scalars import same_quantity
from verifiers.maths.shapes import (
    find_integer,
    find_vector_items,
    find_zero_form,
    is_inequality,
    is_name,
    only_item,
    rename_parameter,
    with_constant_of,
)
from verifiers.verdict import Reason

REGIONS = (Interval, Union, Without, NamedSet, Member)


def compare(gold: Answer, prediction: Answer, options: MathOptions, equality: Equality) -> Finding:
    """Compare a prediction with the reference.

    Args:
        gold: The reference.
        prediction: What the completion answered.
        options: Which bridges between kinds are open.
        equality: Decides about expressions.

    Raises:
        TooCostly: Exact arithmetic would need too large numbers.
    """
    return _Comparison(options, equality).compare(gold, prediction)


@dataclass(frozen=True, slots=True)
class _Comparison:
    options: MathOptions
    equality: Equality

    def compare(  # noqa: C901, PLR0911, PLR0912 - one case for each kind of reference
        self, gold: Answer, prediction: Answer
    ) -> Finding:
        if (isinstance(gold, Relation) and "=" not in gold.operators) or isinstance(gold, REGIONS):
            return self.bounds(gold, prediction)
        prediction = only_item(prediction) if not isinstance(gold, Collection) else prediction
        if isinstance(prediction, Relation) and not isinstance(gold, Relation):
            return self.unwrap(gold, prediction)
        if isinstance(prediction, Member) and isinstance(prediction.name, Symbol):
            prediction = prediction.values
        match gold:
            case Quantity():
                return self.quantity(gold, prediction)
            case Relation():
                return self.equation(gold, prediction)
            case Collection():
                return self.collection(gold, prediction)
            case Matrix(rows):
                return self.matrix(rows, prediction)
            case BaseNumber(digits):
                bare = self.options.base_bridge and digits.isdigit()
                same = gold == prediction or (bare and find_integer(prediction) == int(digits))
                return Finding.of(same)
            case Clock():
                return self.clock(gold, prediction)
            case Ratio(parts):
                return self.ratio(parts, prediction)
            case Congruence():
                return self.congruence(gold, prediction)
            case Family(answer, parameter):
                if not isinstance(prediction, Family):
                    return MISMATCH
                return self.compare(
                    rename_parameter(answer, parameter),
                    rename_parameter(prediction.answer, prediction.parameter),
                )
        return Finding.of(gold == prediction) if type(gold) is type(prediction) else MISMATCH

    def unwrap(self, gold: Answer, prediction: Relation) -> Finding:
        r"""`x = 5` for 5, `\sqrt{81} = 9` for 9.

        The last side, when all that stands before it is true.
        """
        if set(prediction.operators) != {"="}:
            pair = isinstance(gold, Collection) and gold.kind == "tuple"
            interval = pair and self.options.interval_bridge
            return self.bounds(gold, prediction) if interval else MISMATCH
        *before, last = prediction.sides
        claims = before[1:] if is_name(before[0]) else before
        worked = _Comparison(replace(self.options, allow_unevaluated=True), self.equality)
        return join_findings(
            [worked.compare(last, claim) for claim in claims] + [self.compare(gold, last)]
        )

    def quantity(self, gold: Quantity, prediction: Answer) -> Finding:
        if isinstance(prediction, BaseNumber) and self.options.base_bridge:
            value = int(prediction.digits, prediction.base)
            return Finding.of(evaluate(gold.expression) == value)
        if isinstance(prediction, Clock) and self.options.unit_bridge and not prediction.minute:
            return Finding.of(bool(prediction.half) and find_integer(gold) == prediction.hour)
        if not isinstance(prediction, Quantity):
            return MISMATCH
        if self.options.constant_names:
            prediction = with_constant_of(gold, prediction)
        same, reason = same_quantity(gold, prediction, self.options, self.equality)
        return Finding(same, reason)

    def equation(self, gold: Relation, prediction: Answer) -> Finding:
        if not isinstance(prediction, Relation):
            named = gold.operators == ("=",) and is_name(gold.sides[0])
            return self.compare(gold.sides[1], prediction) if named else MISMATCH
        if gold.operators != prediction.operators:
            return MISMATCH
        sides = zip(gold.sides, prediction.sides, strict=True)
        elementwise = join_findings([self.compare(g, p) for g, p in sides])
        if elementwise.same or len(gold.sides) != 2:
            return elementwise
        left, right = find_zero_form(gold), find_zero_form(prediction)
        if left is None or right is None:
            return elementwise
        sign = self.equality.proportion(left, right)
        return Finding.of(None if sign is None else sign != 0, Reason.EQUAL_SYMBOLIC)

    def collection(  # noqa: PLR0911 - one case for each pair of kinds
        self, gold: Collection, prediction: Answer
    ) -> Finding:
        if (
            isinstance(prediction, REGIONS)
            and gold.kind == "tuple"
            and self.options.interval_bridge
        ):
            return self.bounds(gold, prediction)
        if isinstance(prediction, Matrix) and self.options.vector_bridge and gold.kind == "tuple":
            items = find_vector_items(prediction)
            return MISMATCH if items is None else compare_ordered(gold.items, items, self.compare)
        if gold.joined_by != "," and any(is_inequality(item) for item in gold.items):
            return self.bounds(gold, prediction)
        if not isinstance(prediction, Collection):
            return MISMATCH
        if gold.kind == "tuple" and any(is_inequality(item) for item in prediction.items):
            return self.bounds(gold, prediction) if self.options.interval_bridge else MISMATCH
        match gold.kind, prediction.kind:
            case "tuple", "tuple" | "list":
                return compare_ordered(gold.items, prediction.items, self.compare)
            case "list", "tuple":
                return compare_ordered(gold.items, prediction.items, self.compare)
            case ("list", "list") | ("set", "list") | ("list", "set"):
                return compare_unordered(gold.items, prediction.items, self.compare)
            case "set", "set":
                wanted, found = (find_distinct(c.items, self.compare) for c in (gold, prediction))
                return compare_unordered(wanted, found, self.compare)
        return MISMATCH

    def matrix(self, rows: tuple[tuple[Expression, ...], ...], prediction: Answer) -> Finding:
        if isinstance(prediction, Collection) and self.options.vector_bridge:
            items = find_vector_items(Matrix(rows))
            if prediction.kind != "tuple" or items is None:
                return MISMATCH
            return compare_ordered(items, prediction.items, self.compare)
        if not isinstance(prediction, Matrix):
            return MISMATCH
        if [len(row) for row in rows] != [len(row) for row in prediction.rows]:
            return Finding.of(False)
        pairs = [
            self.compare(Quantity(g), Quantity(p))
            for gold_row, row in zip(rows, prediction.rows, strict=True)
            for g, p in zip(gold_row, row, strict=True)
        ]
        return join_findings(pairs)

    def clock(self, gold: Clock, prediction: Answer) -> Finding:
        if self.options.unit_bridge and find_integer(prediction) == gold.hour and not gold.minute:
            return Finding.of(bool(gold.half))  # `10` for `10 a.m.`
        if not isinstance(prediction, Clock):
            return MISMATCH
        halves = {gold.half, prediction.half} - {""}
        times = gold.in_24_hours(), prediction.in_24_hours()
        if None not in times:
            return Finding.of(times[0] == times[1])
        same = (gold.hour, gold.minute) == (prediction.hour, prediction.minute)
        return Finding.of(same and len(halves) < 2)

    def ratio(self, gold: Sequence[Expression], prediction: Answer) -> Finding:
        if isinstance(prediction, Quantity) and len(gold) == 2 and self.options.ratio_bridge:
            return self.compare(Quantity(Apply("div", (gold[0], gold[1]))), prediction)
        if not isinstance(prediction, Ratio) or len(prediction.parts) != len(gold):
            return MISMATCH
        products = [
            self.equality.same(Apply("mul", (gold[0], p)), Apply("mul", (prediction.parts[0], g)))
            for g, p in zip(gold[1:], prediction.parts[1:], strict=True)
        ]
        nonzero = all(evaluate(p) != 0 for p in (*gold, *prediction.parts))
        same = all(products) if None not in products else (False if False in products else None)
        return Finding.of(same if nonzero else tuple(gold) == prediction.parts)

    def congruence(self, gold: Congruence, prediction: Answer) -> Finding:
        if not isinstance(prediction, Congruence) or gold.name != prediction.name:
            return MISMATCH
        values = [evaluate(e) for e in (gold.residue, prediction.residue, gold.modulus)]
        if None in values or evaluate(prediction.modulus) != values[2]:
            return Finding.of(gold == prediction)
        first, second, modulus = (v for v in values if v is not None)
        return Finding.of(bool(modulus) and (first - second) % modulus == 0)

    def bounds(self, gold: Answer, prediction: Answer) -> Finding:
        return compare_bounds(
            gold,
            prediction,
            interval_bridge=self.options.interval_bridge,
            equality=self.equality,
            compare=self.compare,
        )
