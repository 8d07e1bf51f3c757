"""What a step knows of every token, kept in machine words and read like tuples of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, repeat
from typing import Any, TypeVar, cast, overload

import numpy as np

Number = TypeVar("Number", int, float)


class Packed(Sequence[Number]):
    """Numbers of one kind, equal to a tuple of them.

    A token's number takes 4 bytes, and all of a completion's are copied and pickled as one piece;
    `numpy.asarray` gives them without a copy.

    Args:
        values: One dimension; from now on they cannot be changed.
    """

    __slots__ = ("_values",)

    def __init__(self, values: np.ndarray) -> None:
        values.flags.writeable = False
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def __getitem__(self, index: int) -> Number: ...
    @overload
    def __getitem__(self, index: slice) -> Packed[Number]: ...
    def __getitem__(self, index: int | slice) -> Number | Packed[Number]:
        if isinstance(index, slice):
            return Packed(self._values[index])
        return self._values[index].item()

    def __iter__(self) -> Iterator[Number]:
        return iter(cast("list[Number]", self._values.tolist()))

    def __add__(self, other: Sequence[Number]) -> tuple[Number, ...]:
        return (*self, *other)

    def __radd__(self, other: Sequence[Number]) -> tuple[Number, ...]:
        return (*other, *self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Packed):
            return np.array_equal(self._values, cast("Packed[Any]", other)._values)
        return tuple(self) == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Packed({list(self)})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self._values, dtype=dtype, copy=copy)

    def __reduce__(self) -> tuple[Any, ...]:
        # Bytes in the pickle itself: an array outside it would hold on to Ray's shared memory.
        return _unpickle, (self._values.tobytes(), self._values.dtype.str)


def _unpickle(content: bytes, dtype: str) -> Packed[Any]:
    return Packed(np.frombuffer(content, dtype=dtype))


def pack_token_ids(token_ids: Sequence[int] | np.ndarray) -> Packed[int]:
    """Keep token ids, as integers of 32 bits."""
    return Packed(np.array(token_ids, dtype=np.int32))


def pack_logprobs(logprobs: Sequence[float] | np.ndarray) -> Packed[float]:
    """Keep log-probabilities, as the floats of 32 bits that engines compute."""
    return Packed(np.array(logprobs, dtype=np.float32))


class Spans(Sequence[int]):
    """A number of every token that seldom changes, kept as runs of equal ones.

    Args:
        spans: Pairs of a number and how many tokens in a row have it.

    Example:
        >>> tuple(Spans([(3, 2), (4, 1)]))
        (3, 3, 4)
    """

    __slots__ = ("spans",)

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        self.spans = tuple(spans)

    def __len__(self) -> int:
        return sum(count for _, count in self.spans)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...
    def __getitem__(self, index: int | slice) -> int | tuple[int, ...]:
        return tuple(self)[index]

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(repeat(value, count) for value, count in self.spans)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Spans | tuple):
            return tuple(self) == tuple(cast("Sequence[int]", other))
        return NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Spans({list(self.spans)})"


def find_spans(values: Sequence[int]) -> Sequence[tuple[int, int]]:
    """Runs of equal numbers: each number and how many there are in a row."""
    if isinstance(values, Spans):
        return values.spans
    return [(value, len(list(run))) for value, run in groupby(values)]


def to_json(value: object) -> list[Any]:
    """What `json.dumps` makes of the numbers of tokens, as its `default`."""
    if isinstance(value, Packed | Spans):
        return list(cast("Sequence[Any]", value))
    raise TypeError(f"{value!r} is no JSON")
