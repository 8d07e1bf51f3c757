"""A solution of a number puzzle, found by trying everything; to tell whether there is one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations

# Five numbers are some 10^5 states, six are minutes.
MAX_NUMBERS = 5

_Term = tuple[Fraction, str]


def find_expression(numbers: Sequence[int], target: int, *, use_all: bool) -> str | None:
    """An expression of the numbers, each used at most once (or exactly once), that has the value.

    Args:
        numbers: At most `MAX_NUMBERS`.
        target: The value.
        use_all: Whether every number must be used.

    Returns:
        None when there is none.

    Example:
        >>> find_expression([3, 8, 3, 8], 24, use_all=True)
        '8 / (3 - (8 / 3))'
    """
    assert len(numbers) <= MAX_NUMBERS
    start: list[_Term] = [(Fraction(number), str(number)) for number in numbers]
    stack, seen = [start], set()
    while stack:
        terms = stack.pop()
        state = tuple(sorted(value for value, _ in terms))
        if state in seen:
            continue
        seen.add(state)
        for value, text in terms:
            if value == target and (len(terms) == 1 or not use_all):
                return text[1:-1] if text.startswith("(") else text
        for i, j in combinations(range(len(terms)), 2):
            rest = [term for place, term in enumerate(terms) if place not in (i, j)]
            stack += [[*rest, term] for term in _join(terms[i], terms[j])]
    return None


def _join(first: _Term, second: _Term) -> Iterator[_Term]:
    (a, left), (b, right) = first, second
    yield a + b, f"({left} + {right})"
    yield a * b, f"({left} * {right})"
    yield a - b, f"({left} - {right})"
    yield b - a, f"({right} - {left})"
    if b:
        yield a / b, f"({left} / {right})"
    if a:
        yield b / a, f"({right} / {left})"
