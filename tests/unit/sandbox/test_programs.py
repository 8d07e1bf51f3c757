import pytest

from sandbox.checkers import read_checker
from sandbox.errors import BadTest
from sandbox.programs import read_program


def test_names_are_what_the_code_uses_and_does_not_bind():
    code = "import math\nxs = [1]\ndef helper(y): return y\nassert helper(f(xs)) == g(math.pi)"
    assert read_program(code).names == ("f", "g")
    assert read_program(code, setup="def g(x): return x").names == ("f",)
    assert read_program(code, function="f").names == ("f",)


def test_names_are_what_the_code_imports_from_the_program():
    code = "from solution import f as h\nimport solution as s\nassert h(1) == s.g(1) == len([1])"
    assert read_program(code).names == ("f", "g")
    assert read_program("from answer import f\nassert f(1)", module="answer").names == ("f",)


def test_forgotten_imports_of_the_standard_library_are_made():
    assert read_program("assert f(1) == sys.maxsize").setup == "import sys\n"


def test_calls_whose_value_is_not_used_are_known_by_line():
    code = "def check(candidate):\n    xs = [2, 1]\n    candidate(xs)\n    y = candidate(xs)"
    assert read_program(code, function="order").in_place == (3,)


def test_what_is_used_as_a_class_is_known():
    code = "s = Stack()\ns.push(1)\nassert f(1).count(2) == 0\nassert Queue().peek() is None"
    assert read_program(code).classes == ("Queue", "Stack")


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("assert f(", "compile"),
        ("assert 1 == 1", "entry_point"),
        ("a = [1]\nassert f(a) is a", "same object"),
        ("self.assertIs(f(a), a)", "same object"),
        ("assert isinstance(f(1), Point)", "class of the program"),
        ("with pytest.raises(Bad):\n  f(1)", "exception class"),
        ("try:\n  f(1)\nexcept Bad: pass", "exception class"),
        ("class A(Base): pass", "derives"),
    ],
)
def test_what_needs_more_than_values_is_refused(code, named):
    with pytest.raises(BadTest, match=named):
        read_program(code)


def test_identity_of_singletons_is_a_value():
    read_program("assert f(1) is None\nassert type(f(2)) is int\nassert f(3) is not True")


def test_a_checker_is_a_function_or_a_script():
    assert read_checker("def check(stdin, expected, output): return True").form == "function"
    assert read_checker("print(1)").form == "script"
    for source in ("def check(output): return True", "def check("):
        with pytest.raises(BadTest, match="checker"):
            read_checker(source)
