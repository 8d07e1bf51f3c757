import ast
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
from sandbox.expressions import FUNCTIONS, Evaluator, require_supported

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


P = 2**61 - 1
SAME_HASH = {
    "ints": [number * P for number in range(200)],
    "complex": [complex(-1000003 * number, number) for number in range(200)],
    "tuples": [(number * P, 1) for number in range(200)],
    "fractions": [Fraction(number * P + 1, 1) for number in range(200)],
}
HASHED = {
    "set": lambda items: ["set", items],
    "frozenset": lambda items: ["frozenset", items],
    "dict": lambda items: ["dict", [[item, 1] for item in items]],
    "keys": lambda items: ["dict_keys", items],
    "items": lambda items: ["dict_items", [["tuple", [item, 1]] for item in items]],
    "inside": lambda items: ["list", [["dict", [["a", ["set", items]]]]]],
}


@pytest.mark.parametrize("items", SAME_HASH.values(), ids=SAME_HASH)
@pytest.mark.parametrize("form", HASHED.values(), ids=HASHED)
def test_values_that_were_chosen_for_their_hash_do_not_cross(items, form):
    assert len(set(map(hash, items))) == 1
    with pytest.raises(ValueError, match="the same hash"):
        decode(form([encode(item) for item in items]))


@pytest.mark.parametrize("call", ["set(f())", "frozenset(f())", "dict(zip(f(), f()))", "{*f()}"])
def test_a_test_does_not_gather_what_was_chosen_for_its_hash(call):
    tree = ast.parse(call, mode="eval").body
    known = {
        id(node): SAME_HASH["ints"]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node) == "f()"
    }
    require_supported(tree, {}, known)
    with pytest.raises(ValueError, match="the same hash"):
        Evaluator({}, known).value(tree)


def test_many_values_cross_all_the_same():
    many = 20_000
    for items in (range(many), map(str, range(many)), ((i, -i) for i in range(many))):
        value = set(items)
        assert through_json(value) == value
        assert through_json(dict.fromkeys(value)) == dict.fromkeys(value)
    assert through_json(["a"] * many) == ["a"] * many
    assert FUNCTIONS["set"](["a"] * many) == {"a"}
    assert FUNCTIONS["dict"]([("a", 1), ("a", 2)], b=3) == {"a": 2, "b": 3}
    assert FUNCTIONS["dict"]({"a": 1}) == {"a": 1}
    assert (FUNCTIONS["dict"](), FUNCTIONS["set"](), FUNCTIONS["frozenset"]()) == ({}, set(), set())
