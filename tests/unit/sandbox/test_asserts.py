import pytest

from sandbox.asserts import read_asserts
from sandbox.container.values import Opaque
from sandbox.errors import BadTest


def holds(code, *values, function=None):
    (test,) = read_asserts(code, function=function)
    return test.holds(values)


@pytest.mark.parametrize(
    ("code", "value", "result"),
    [
        ("assert f(1) == 2", 2, True),
        ("assert f(1) == 2", 3, False),
        ("assert 2 == f(1)", 2, True),
        ("assert f(1) == (1, 2)", [1, 2], False),
        ("assert f(1) == 1", True, True),
        ("assert f(1) is True", 1, False),
        ("assert f(1) is None", None, True),
        ("assert f(1) is not None", None, False),
        ("assert not f(1)", [], True),
        ("assert f(1)", 0, False),
        ("assert f(1) in [1, 2]", 2, True),
        ("assert abs(f(1) - 0.5) < 1e-6", 0.5000000001, True),
        ("assert abs(f(1) - 0.5) < 1e-6", 0.6, False),
        ("assert math.isclose(f(1), 0.1, rel_tol=0.01)", 0.1001, True),
        ("assert sorted(f(1)) == [1, 2]", [2, 1], True),
        ("assert len(f(1)) == 2 and f(1)", "ab", None),
        ("assert 0 < f(1) < 3", 2, True),
        ("assert f(1)[0] == 7", [7, 8], True),
        ("assert f(1)[1:] == [8]", [7, 8], True),
        ("assert isinstance(f(1), int)", 3, True),
        ("assert isinstance(f(1), (int, str))", 3.5, False),
        ("assert type(f(1)) == list", [1], True),
        ("assert set(f(1)) == {1, 2}", [1, 2, 2], True),
        ("assert round(f(1), 2) == 0.33", 1 / 3, True),
        ("assert f(1) == [0] * 3", [0, 0, 0], True),
        ("assert f(1) == 2 ** 10", 1024, True),
        ("assert f(1) != 3", 4, True),
        ("assert f(1) == -1", -1, True),
        ("assert f(1) == float('inf')", float("inf"), True),
    ],
)
def test_conditions(code, value, result):
    if result is None:
        (test,) = read_asserts(code)
        assert len(test.calls) == 2
        assert test.holds([value, value])
    else:
        assert holds(code, value) is result


def test_values_of_foreign_types_have_only_a_truth():
    always_equal = Opaque("AlwaysEqual", True)
    assert not holds("assert f(1) == 2", always_equal)
    assert not holds("assert f(1) in [1, 2]", always_equal)
    assert holds("assert f('a')", Opaque("Match", True))
    with pytest.raises(TypeError):
        holds("assert abs(f(1) - 2) < 1", always_equal)
    with pytest.raises(TypeError):
        holds("assert f(1) <= 2", always_equal)


def test_arguments_are_evaluated_here():
    code = """
import math
pi = math.pi
xs = [1, 2] + [3]
assert f(*xs, *[4], -5, tuple([6]), key={"a": {1}}, scale=pi) == 0
"""
    (test,) = read_asserts(code)
    (call,) = test.calls
    assert call.arguments == (1, 2, 3, 4, -5, (6,))
    assert call.keywords["key"] == {"a": {1}}
    assert call.keywords["scale"] == pytest.approx(3.14159, abs=1e-4)


def test_a_check_function_is_read_with_its_loops_and_names():
    code = '''
METADATA = {"author": "x"}

def check(candidate):
    """Doc."""
    assert True, "this prints"
    result = candidate(2)
    assert result == 4 and result > 3
    for x, y in [(1, 1), (3, 9)]:
        assert candidate(x) == y, "wrong"

check(square)
'''
    tests = read_asserts(code, function="square")
    assert [call.arguments for test in tests for call in test.calls] == [(2,), (2,), (1,), (3,)]
    assert {call.function for test in tests for call in test.calls} == {"square"}
    assert [test.holds([4] * len(test.calls)) for test in tests] == [True, False, False]
    assert [test.holds([9] * len(test.calls)) for test in tests] == [False, False, True]


def test_functions_that_pytest_would_find_are_read_each_with_names_of_its_own():
    code = """
from solution import f, g
limit = 1

def test_f():
    limit = 2
    assert f(limit) == 4

def test_g():
    assert g(limit) == 3
"""
    tests = read_asserts(code)
    calls = [call for test in tests for call in test.calls]
    assert [(call.function, call.arguments) for call in calls] == [("f", (2,)), ("g", (1,))]


def test_two_calls_are_compared():
    (test,) = read_asserts("assert f(1) == f(2)")
    assert test.holds([5, 5])
    assert not test.holds([5, 6])


@pytest.mark.parametrize(
    ("code", "quoted"),
    [
        ("assert f(1) == g.h(2)", "g.h"),
        ("assert f(1) == [x for x in range(3)]", "for x in"),
        ("import random\nassert f(random.random()) == 1", "random.random"),
        ("import os\nos.system('x')", "os.system"),
        ("while True: pass", "while True"),
        ("assert f(1) == 1 or open('x')", "open"),
        ("assert f(1) * 1000000000 == 0", "f(1) * 1000000000"),
        ("assert f(1) ** 2 == 4", "f(1) ** 2"),
        ("assert '%s' % f(1) == ''", "%"),
        ("assert f(1).upper() == 'A'", "upper"),
        ("assert f(1) == undefined", "undefined"),
        ("assert f(**{'a': 1}) == 2", "**"),
        ("def check(candidate):\n  assert candidate(1) == 1", "entry_point"),
        ("from statistics import mean\nassert f([1]) == mean([1])", "mean([1])"),
        ("def test_f(case): assert f(1) == 1", "test_f(case)"),
        ("assert 1 == 2", "never hold"),
        ("x = 1", "no assert"),
        ("assert f(1) ==", "compile"),
        ("assert f(1 // 0) == 1", "1 // 0"),
    ],
)
def test_what_cannot_be_judged_here_is_refused_by_name(code, quoted):
    with pytest.raises(BadTest) as caught:
        read_asserts(code)
    assert quoted in str(caught.value)
