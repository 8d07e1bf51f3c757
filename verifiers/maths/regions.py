"""Sets of real numbers written as intervals, unions and inequalities.

Compared by what they contain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from verifiers.maths.answers import (
    FLIPPED,
    Answer,
    Collection,
    Interval,
    Member,
    NamedSet,
    Operator,
    Quantity,
    Relation,
    Union,
    Without,
)
from verifiers.maths.equality import Equality, float_value
from verifiers.maths.expressions import Apply, Expression, Number, Symbol

# Equal ends may differ by rounding; ends that close are put to the exact test.
CLOSE = 1e-9
INFINITY = Symbol("oo")


class NotARegion(Exception):
    """The answer is not a set of real numbers with constant ends."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Numbers that stand in one relation to an end."""

    operator: Operator
    end: Expression


@dataclass(frozen=True, slots=True)
class _Complement:
    """Numbers that are not in a region."""

    region: Region

    def ends(self) -> list[Expression]:
        return self.region.ends()

    def contains(self, place: int, places: dict[Expression, int]) -> bool:
        return not self.region.contains(place, places)


@dataclass(frozen=True, slots=True)
class Region:
    """Pieces joined by `all` or `any`; nothing joined by `all` is every number."""

    parts: tuple[Region | _Complement | _Piece, ...]
    every: bool

    def ends(self) -> list[Expression]:
        """All ends, in the order in which they are written."""
        found: list[Expression] = []
        for part in self.parts:
            found.extend([part.end] if isinstance(part, _Piece) else part.ends())
        return found

    def contains(self, place: int, places: dict[Expression, int]) -> bool:
        """Whether the number at a place of the common scale belongs to the region."""
        tests = (
            _holds(part.operator, place, places[part.end])
            if isinstance(part, _Piece)
            else part.contains(place, places)
            for part in self.parts
        )
        return all(tests) if self.every else any(tests)


def same_region(gold: Answer, prediction: Answer, equality: Equality) -> bool | None:
    """Whether two answers contain the same numbers.

    None when that depends on an undecided equality.

    Raises:
        NotARegion: One of them is no set of reals with constant ends.
    """
    left, right = read_region(gold), read_region(prediction)
    places = _place_ends([*left.ends(), *right.ends()], equality)
    if places is None:
        return None
    scale = range(max(places.values(), default=0) + 2)
    return all(left.contains(p, places) == right.contains(p, places) for p in scale)


def region_name(answer: Answer) -> Expression | None:
    """The variable that an inequality or membership is about."""
    match answer:
        case Member(name, _):
            return name
        case Relation(sides, _):
            named = (_find_name(s.expression) for s in sides if isinstance(s, Quantity))
            return next((name for name in named if name is not None), None)
        case Collection("list", items):
            return region_name(items[0])
    return None


def read_region(answer: Answer) -> Region:  # noqa: C901, PLR0911 - one case for each kind
    """The region that an answer describes.

    Raises:
        NotARegion: It describes none.
    """
    match answer:
        case NamedSet("reals"):
            return Region((), every=True)
        case NamedSet("empty"):
            return Region((), every=False)
        case Member(_, values):
            return read_region(values)
        case Interval(left, right, left_closed, right_closed):
            return _between(left, right, left_closed, right_closed)
        case Collection("tuple", (Quantity(left, None), Quantity(right, None))):
            return _between(left, right, False, False)
        case Collection("set", items):
            return Region(tuple(_point(item) for item in items), every=False)
        case Without(whole, removed):
            return Region((read_region(whole), _Complement(read_region(removed))), every=True)
        case Union(parts):
            return Region(tuple(read_region(part) for part in parts), every=False)
        case Relation():
            return _read_chain(answer)
        case Collection("list", items, joined_by) if (
            joined_by != "," and len({region_name(item) for item in items}) == 1
        ):
            return Region(tuple(read_region(item) for item in items), every=joined_by == "and")
        case Collection("list", items, ",") if any(isinstance(item, Interval) for item in items):
            return Region(tuple(read_region(item) for item in items), every=False)
    raise NotARegion


def _point(item: Answer) -> _Piece:
    if isinstance(item, Quantity) and item.unit is None:
        return _Piece("=", item.expression)
    raise NotARegion


def _between(left: Expression, right: Expression, left_closed: bool, right_closed: bool) -> Region:
    pieces = []
    if left != Apply("neg", (INFINITY,)):
        pieces.append(_Piece(">=" if left_closed else ">", left))
    if right not in (INFINITY, Apply("add", (INFINITY,))):
        pieces.append(_Piece("<=" if right_closed else "<", right))
    return Region(tuple(pieces), every=True)


def _read_chain(relation: Relation) -> Region:
    r"""`1 < x \le 2`: one side is the variable, the others are constants."""
    expressions = [s.expression if isinstance(s, Quantity) else None for s in relation.sides]
    if (distance := _read_distance(relation, expressions)) is not None:
        return distance
    names = [place for place, e in enumerate(expressions) if e is not None and _is_name(e)]
    if len(names) != 1 or None in expressions:
        raise NotARegion
    place = names[0]
    if not (len(relation.operators) == 1 or (len(relation.operators) == 2 and place == 1)):
        raise NotARegion
    pieces = []
    for index, operator in enumerate(relation.operators):
        end = expressions[index + 1 if index >= place else index]
        assert end is not None
        pieces.append(_Piece(operator if index >= place else FLIPPED[operator], end))
    return Region(tuple(_without_infinity(pieces)), every=True)


def _read_distance(relation: Relation, sides: Sequence[Expression | None]) -> Region | None:
    """`|x - 3| < 2` as the numbers within, or beyond, so far from the middle."""
    match sides:
        case [Apply("abs", (inner,)), Apply() | Number() as reach]:
            operator = relation.operators[0]
        case [Apply() | Number() as reach, Apply("abs", (inner,))]:
            operator = FLIPPED[relation.operators[0]]
        case _:
            return None
    match inner:
        case Symbol():
            middle: Expression = Number(Fraction(0))
        case Apply("add", (Symbol(), offset)):
            middle = Apply("neg", (offset,))
        case _:
            return None
    low, high = (Apply("add", (middle, end)) for end in (Apply("neg", (reach,)), reach))
    pieces = _Piece(FLIPPED[operator], low), _Piece(operator, high)
    return Region(pieces, every=operator in ("<", "<=", "!="))


def _without_infinity(pieces: list[_Piece]) -> list[_Piece]:
    return [p for p in pieces if p.end not in (INFINITY, Apply("neg", (INFINITY,)))]


def _is_name(expression: Expression) -> bool:
    return isinstance(expression, Symbol) and expression.name not in ("pi", "e", "i", "oo")


def _find_name(expression: Expression) -> Expression | None:
    """The variable that stands alone or in a distance, as `x` and `|x - 3|`."""
    match expression:
        case Apply("abs", (Symbol() as name,)) | Apply(
            "abs", (Apply("add", (Symbol() as name, _)),)
        ):
            return name
    return expression if _is_name(expression) else None


def _place_ends(ends: list[Expression], equality: Equality) -> dict[Expression, int] | None:
    """Odd places on a common scale, in order of size; the even places between them are the gaps."""
    valued = []
    for end in dict.fromkeys(ends):
        value = float_value(end)
        if value is None:
            raise NotARegion
        valued.append((value, end))
    valued.sort(key=lambda pair: pair[0])
    places: dict[Expression, int] = {}
    last: tuple[float, Expression] | None = None
    place = -1
    for value, end in valued:
        same: bool | None = False
        if last is not None and abs(value - last[0]) <= CLOSE * max(1.0, abs(value)):
            same = equality.same(end, last[1])
        if same is None:
            return None
        place += 0 if same else 2
        places[end] = place
        last = value, end
    return places


def _holds(operator: Operator, place: int, end: int) -> bool:
    tests: dict[Operator, Callable[[int, int], bool]] = {
        "<": int.__lt__,
        ">": int.__gt__,
        "<=": int.__le__,
        ">=": int.__ge__,
        "=": int.__eq__,
        "!=": int.__ne__,
    }
    return tests[operator](place, end)
