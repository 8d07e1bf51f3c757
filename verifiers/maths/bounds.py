"""Whether two answers bound the same numbers: by what they contain, else part by part."""

from __future__ import annotations

from verifiers.maths.answers import (
    FLIPPED,
    Answer,
    Collection,
    Interval,
    Matrix,
    Member,
    NamedSet,
    Quantity,
    Relation,
    Union,
    Words,
)
from verifiers.maths.equality import Equality
from verifiers.maths.finding import MISMATCH, Finding, join_findings
from verifiers.maths.items import Compare, compare_ordered, compare_unordered
from verifiers.maths.regions import NotARegion, region_name, same_region
from verifiers.maths.shapes import find_zero_form, upwards
from verifiers.verdict import Reason


def compare_bounds(
    gold: Answer,
    prediction: Answer,
    *,
    interval_bridge: bool,
    equality: Equality,
    compare: Compare,
) -> Finding:
    """Compare intervals, unions, named sets, memberships and inequalities.

    Args:
        gold: The reference.
        prediction: What the completion answered.
        interval_bridge: Whether an inequality counts as the interval that it describes.
        equality: Decides about ends.
        compare: Compares the parts of answers whose ends are no constants.
    """
    gold, prediction = upwards(gold), upwards(prediction)
    names = {region_name(gold), region_name(prediction)} - {None}
    if len(names) > 1:
        return Finding.of(False)
    if gold == NamedSet("empty") and prediction == Words("no solution"):
        return Finding.of(True, Reason.EQUAL_TEXT)
    bare = isinstance(prediction, Quantity | Words | Matrix)
    relation = isinstance(prediction, Relation | Member)
    if bare or (relation and not names and not interval_bridge):
        return MISMATCH
    if relation and isinstance(gold, Collection | Interval | Union) and not interval_bridge:
        return MISMATCH
    try:
        return Finding.of(same_region(gold, prediction, equality))
    except NotARegion:
        return _compare_parts(gold, prediction, equality, compare)


def _compare_parts(  # noqa: PLR0911 - one case for each pair of kinds
    gold: Answer, prediction: Answer, equality: Equality, compare: Compare
) -> Finding:
    """Intervals with symbolic ends, inequalities in several variables: part by part."""
    match gold, prediction:
        case Interval(), Interval():
            closed = (gold.left_closed, gold.right_closed)
            if closed != (prediction.left_closed, prediction.right_closed):
                return Finding.of(False)
            ends = ((gold.left, prediction.left), (gold.right, prediction.right))
            return join_findings([Finding.of(equality.same(g, p)) for g, p in ends])
        case Union(parts), Union(others):
            return compare_unordered(parts, others, compare)
        case Member(_, values), Member(_, others):
            return compare(values, others)
        case Member(_, values), _:
            return compare(values, prediction)
        case Relation(), Relation():
            return _compare_inequalities(gold, prediction, equality, compare)
        case Collection(kind, items), Collection(other_kind, others) if kind == other_kind:
            match_up = compare_ordered if kind == "tuple" else compare_unordered
            return match_up(items, others, compare)
    return MISMATCH


def _compare_inequalities(
    gold: Relation, prediction: Relation, equality: Equality, compare: Compare
) -> Finding:
    if len(gold.sides) != 2 or len(prediction.sides) != 2:
        if gold.operators != prediction.operators:
            return MISMATCH
        return compare_ordered(gold.sides, prediction.sides, compare)
    left, right = find_zero_form(gold), find_zero_form(prediction)
    if left is None or right is None:
        return MISMATCH
    signs = {("<", "<"): 1, ("<=", "<="): 1, ("<", ">"): -1, ("<=", ">="): -1, ("!=", "!="): 0}
    operators = (gold.operators[0], prediction.operators[0])
    flipped = (FLIPPED[operators[0]], FLIPPED[operators[1]])
    wanted = signs.get(operators, signs.get(flipped))
    if wanted is None:
        return MISMATCH
    sign = equality.proportion(left, right)
    if sign is None:
        return Finding.of(None)
    return Finding.of(sign != 0 and wanted in (0, sign), Reason.EQUAL_SYMBOLIC)
