"""The kinds of answer that are told apart, and how each looks once read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from verifiers.maths.expressions import Expression
from verifiers.maths.units import Unit

Operator = Literal["=", "<", ">", "<=", ">=", "!="]
# The relation as it reads from the other side.
FLIPPED: dict[Operator, Operator] = {
    "<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!=",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Quantity:
    r"""A number or formula, with the unit written after it. Example: `5 \text{ cm}`."""

    expression: Expression
    unit: Unit | None = None


@dataclass(frozen=True, slots=True)
class Collection:
    r"""Several answers.

    Attributes:
        kind: `list` for `1, 2` (any order), `set` for `\{1, 2\}`, `tuple` for `(1, 2)` (ordered).
        items: The members as written.
        joined_by: `and` or `or` where that word stands between them.
    """

    kind: Literal["list", "set", "tuple"]
    items: tuple[Answer, ...]
    joined_by: Literal["and", "or", ","] = ","


@dataclass(frozen=True, slots=True)
class Interval:
    """`[a, b)` and the like.

    `(a, b)` is read as a tuple, which counts as an interval where the other side is one.
    """

    left: Expression
    right: Expression
    left_closed: bool
    right_closed: bool


@dataclass(frozen=True, slots=True)
class Union:
    r"""Parts joined by `\cup`."""

    parts: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class Without:
    r"""`\mathbb{R} \setminus \{1\}`."""

    whole: Answer
    removed: Answer


@dataclass(frozen=True, slots=True)
class NamedSet:
    r"""`\mathbb{R}`, `\emptyset`."""

    name: Literal["reals", "integers", "naturals", "rationals", "complex", "empty"]


@dataclass(frozen=True, slots=True)
class Relation:
    r"""A chain such as `1 < x \le 2` or `y = 2x + 3`."""

    sides: tuple[Answer, ...]
    operators: tuple[Operator, ...]


@dataclass(frozen=True, slots=True)
class Member:
    r"""`x \in [1, 2]`."""

    name: Expression
    values: Answer


@dataclass(frozen=True, slots=True)
class Congruence:
    r"""`x \equiv 3 \pmod 7`."""

    name: Expression
    residue: Expression
    modulus: Expression


@dataclass(frozen=True, slots=True)
class Family:
    r"""A formula over all integers: `\frac{\pi}{2} + k\pi, k \in \mathbb{Z}`."""

    answer: Answer
    parameter: str


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of expressions; a column vector is a matrix of one column."""

    rows: tuple[tuple[Expression, ...], ...]


@dataclass(frozen=True, slots=True)
class BaseNumber:
    """`3120_4`: digits in a base that is written."""

    digits: str
    base: int


@dataclass(frozen=True, slots=True)
class Clock:
    """`9:30`, with A.M. or P.M. where that is written."""

    hour: int
    minute: int
    half: str = ""

    def in_24_hours(self) -> tuple[int, int] | None:
        """Hour and minute of the day; None for a time that can be in either half of it."""
        if self.half:
            return self.hour % 12 + 12 * (self.half == "p"), self.minute
        return None if 1 <= self.hour <= 12 else (self.hour, self.minute)


@dataclass(frozen=True, slots=True)
class Ratio:
    """`1:2:3`."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """A letter of a multiple-choice problem."""

    letter: str


@dataclass(frozen=True, slots=True)
class Words:
    """Text, as `normalize_words` leaves it."""

    text: str


Answer = (
    Quantity
    | Collection
    | Interval
    | Union
    | Without
    | NamedSet
    | Relation
    | Member
    | Congruence
    | Family
    | Matrix
    | BaseNumber
    | Clock
    | Ratio
    | Choice
    | Words
)
