import datetime as dt
import json
import math
from collections import deque
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.container.values import MAX_DEPTH, Opaque, crosses, decode, encode

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.text()
    | st.binary()
)
HASHABLE = st.recursive(
    LEAVES, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=6
)
VALUES = st.recursive(
    HASHABLE,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(HASHABLE, inner, max_size=3)
        | st.sets(HASHABLE, max_size=3)
    ),
    max_leaves=15,
)


def through_json(value):
    return decode(json.loads(json.dumps(encode(value))))


def same_types(one, other):
    if type(one) is not type(other):
        return False
    if isinstance(one, (list, tuple)):
        return all(map(same_types, one, other))
    return True


@given(VALUES)
def test_values_cross_with_their_types(value):
    back = through_json(value)
    assert back == value
    assert same_types(back, value)
    assert crosses(value)


def test_what_json_cannot_hold_crosses():
    assert math.isnan(through_json(math.nan))
    assert through_json([math.inf, -math.inf, -0.0, 10**400, bytearray(b"x")]) == [
        math.inf,
        -math.inf,
        -0.0,
        10**400,
        bytearray(b"x"),
    ]
    assert math.copysign(1, through_json(-0.0)) == -1


def test_subclasses_lose_their_tricks():
    class Equal(int):
        def __eq__(self, other):
            return True

        __hash__ = int.__hash__

        def __index__(self):
            return 42

    class Items(list):
        def __iter__(self):
            return iter([42])

    assert through_json(Equal(3)) != 4
    assert type(through_json(Equal(3))) is int
    assert through_json(Items([1])) == [1]


def test_foreign_values_equal_nothing():
    class Equal:
        __class__ = int  # type: ignore[assignment]

        def __eq__(self, other):
            return True

        __hash__ = object.__hash__

    back = through_json([Equal()])[0]
    assert isinstance(back, Opaque)
    assert back != 42
    assert back != back  # noqa: PLR0124 (the point of it)
    assert back.truth is True
    assert not crosses([{"a": (1, Equal())}])


def test_truth_that_raises_is_unknown():
    class Odd:
        def __bool__(self):
            raise RuntimeError

    assert through_json(Odd()).truth is None


def test_numpy_scalars_are_numbers_and_arrays_are_foreign():
    assert through_json(np.int64(3)) == 3
    assert through_json(np.bool_(True)) is True
    assert through_json(np.float64(0.5)) == 0.5
    assert isinstance(through_json(np.array([1, 2])), Opaque)


def test_too_deep_a_value_is_foreign_not_an_error():
    deep: list = []
    for _ in range(10_000):
        deep = [deep]
    back = through_json(deep)
    for _ in range(MAX_DEPTH + 1):
        back = back[0]
    assert isinstance(back, Opaque)


@pytest.mark.parametrize(
    "payload",
    [
        [],
        ["list"],
        ["list", 3],
        ["nothing", []],
        ["int", 3],
        ["int", "zz"],
        ["int", "f" * 1_000_000],
        ["dict", [[1]]],
        ["dict", [[["list", []], 1]]],
        ["set", [["list", []]]],
        ["float", "one"],
        ["complex", ["0x1p0"]],
        ["bytes", "0"],
        ["opaque", []],
        [["list"], []],
        {"a": 1},
    ],
)
def test_what_encode_does_not_make_is_refused(payload):
    with pytest.raises(ValueError):  # noqa: PT011 (any will do)
        decode(payload)


def test_nesting_is_refused_before_the_stack_ends():
    payload: object = 1
    for _ in range(5000):
        payload = ["list", [payload]]
    with pytest.raises(ValueError, match="deep"):
        decode(payload)


def test_values_of_the_library_cross():
    values_ = [
        range(1, 9, 2), deque([1, 2], maxlen=3), Fraction(1, 3), Decimal("0.1"),
        dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 1), dt.timedelta(1, 2, 3),  # noqa: DTZ001
    ]  # fmt: skip
    back = through_json(values_)
    assert back == values_
    assert same_types(back, values_)
    assert through_json({"a": 1}.keys()) == {"a"}
    assert list(through_json(x for x in (1, [2]))) == [1, [2]]


@pytest.mark.parametrize("value", [range(10**18), Decimal("1e999999"), (1 for _ in iter(int, 1))])
def test_short_words_for_endless_work_do_not_cross(value):
    assert isinstance(through_json(value), Opaque)


@pytest.mark.parametrize(
    "payload",
    [["range", [0, 10**15, 1]], ["Decimal", "1e99999"], ["Fraction", [1, 0]], ["deque", 3],
     ["date", "x"]],
)  # fmt: skip
def test_forged_values_of_the_library_are_refused(payload):
    with pytest.raises(ValueError):  # noqa: PT011 (any will do)
        decode(payload)
