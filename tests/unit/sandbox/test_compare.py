import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.compare import COMPARERS, Comparer, same_value
from sandbox.container.values import Opaque


@pytest.mark.parametrize(
    ("kind", "output", "expected", "same"),
    [
        ("lines", "42\n", "42", True),
        ("lines", "42  \n\n\n", "42\n", True),
        ("lines", "a\r\nb\r\n", "a\nb\n", True),
        ("lines", " 42", "42", False),
        ("lines", "a\n\nb", "a\nb", False),
        ("lines", "first\n", "first\nsecond\nthird\nfourth\n", False),
        ("lines", "1\n2\n3", "1\n2\n", False),
        ("lines", "2\n1\n", "1\n2\n", False),
        ("lines", "", "\n\n", True),
        ("lines", "", "42", False),
        ("lines", "YES", "yes", False),
        ("tokens", "1 2\n3", "1\n2 3", True),
        ("tokens", "1 2", "1\n2\n2\n1", False),
        ("tokens", "12", "1 2", False),
        ("floats", "0.3333333", "0.33333334", True),
        ("floats", "0.334", "0.33333334", False),
        ("floats", "nan", "nan", False),
        ("floats", "nan", "1.0", False),
        ("floats", "inf", "1.0", False),
        ("floats", "42.0", "42", False),
        ("floats", "42", "42.0", True),
        ("floats", "-0.0", "0.0", True),
        ("floats", "1e3", "1000.0", True),
        ("floats", "1000000.5", "1000000.0", True),
        ("floats", "1e99999", "1.0", False),
        ("floats", "1" * 10_000, "1.0", False),
        ("floats", "0x1p0", "1.0", False),
        ("floats", "1_0.0", "10.0", False),
        ("floats", "x 1.0", "x 1.00000001", True),
        ("exact", "42\n", "42", False),
        ("exact", "42", "42", True),
    ],
)
def test_comparers(kind, output, expected, same):
    assert Comparer(kind=kind).same(output, expected) is same


def test_case_counts_unless_told_otherwise():
    assert Comparer(ignore_case=True).same("Yes", "YES")
    assert not Comparer(kind="exact", ignore_case=True).same("Yes", "YES")


def test_tolerances_are_used():
    strict = Comparer(kind="floats", abs_tol=0.0, rel_tol=1e-12)
    assert not strict.same("1.0000001", "1.0")
    assert Comparer(kind="floats", abs_tol=0.5, rel_tol=0.0).same("1.4", "1.0")


@given(st.text(), st.sampled_from(COMPARERS))
def test_a_text_is_as_expected_by_itself(text, kind):
    if "nan" not in text.casefold():
        assert Comparer(kind=kind).same(text, text)


@given(st.text(alphabet="ab \n"), st.text(alphabet="ab \n"))
def test_lines_is_stricter_than_tokens(output, expected):
    if Comparer(kind="lines").same(output, expected):
        assert Comparer(kind="tokens").same(output, expected)


@pytest.mark.parametrize(
    ("value", "expected", "same"),
    [
        (3, 3, True),
        (3, 4, False),
        (True, 1, False),
        (1, True, False),
        (1.0, 1, False),
        (1, 1.0, True),
        (True, 1.0, False),
        (1.0000001, 1.0, True),
        (1.1, 1.0, False),
        (math.nan, math.nan, False),
        (math.inf, math.inf, True),
        (10**400, 1.0, False),
        ((1, 2), [1, 2], True),
        ([1, (2, 3)], [1, [2, 3]], True),
        ([1, 2, 2], [1, 2], False),
        ([2, 1], [1, 2], False),
        ({1, 2}, [1, 2], False),
        ("12", ["1", "2"], False),
        ({"a": [1.0]}, {"a": [1.0000001]}, True),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({True: 1}, {1: 1}, False),
        ({1, 2}, {2, 1}, True),
        (None, None, True),
        (None, False, False),
        ("", None, False),
        (b"x", "x", False),
        (Opaque("AlwaysEqual", True), 3, False),
        ([Opaque("AlwaysEqual", True)], [3], False),
        (Opaque("AlwaysEqual", True), 3.0, False),
    ],
)
def test_values(value, expected, same):
    assert same_value(value, expected) is same
