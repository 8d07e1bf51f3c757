import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.container.large_values import MAX_LEAVES, digest, is_large

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.lists(st.recursive(LEAVES, lambda inner: st.lists(inner) | st.tuples(inner, inner)))


@given(VALUES, VALUES)
def test_equal_values_share_a_digest_and_others_do_not(one, other):
    assert (digest(one) == digest(other)) == (one == other)


def test_numbers_are_alike_where_they_are_equal():
    assert digest([1, True, [2.0]]) == digest([1.0, 1, [2]])
    assert digest([-1]) != digest([-2])
    assert digest([(1, 2)]) != digest([[1, 2]])


def test_only_plain_values_have_one():
    class Text(str):
        __slots__ = ()

    for value in ([{}], [[Text("a")]], [{1}]):
        with pytest.raises(ValueError, match="plain"):
            digest(value)


def test_leaves_make_a_value_large():
    assert is_large([(1, 2)] * (MAX_LEAVES // 2 + 1))
    assert not is_large([(1, 2)] * (MAX_LEAVES // 2))
    assert not is_large("x" * (MAX_LEAVES + 1))
