"""Source with the escapes of published code, read where warnings are errors, as in all tests."""

import warnings

import pytest

from sandbox.checkers import read_checker
from sandbox.limits import Limits
from sandbox.source import parse, symbol_table
from sandbox.suite_reader import read_suite

ESCAPES = r'pattern = "\w+"'


def test_what_the_compiler_remarks_is_no_error():
    with pytest.raises(SyntaxError, match="invalid escape"):
        compile(ESCAPES, "code", "exec")
    assert len(parse(ESCAPES).body) == 1
    assert symbol_table(ESCAPES, "code").lookup("pattern").is_assigned()
    with pytest.raises(SyntaxError):
        parse("def f(:")


def test_filters_of_warnings_are_as_before():
    before = list(warnings.filters)
    parse(ESCAPES)
    with pytest.raises(SyntaxError):
        symbol_table("def f(:", "code")
    assert warnings.filters == before


@pytest.mark.parametrize(
    "test",
    [
        {"kind": "assert", "code": r'assert f("\w") == "\d"'},
        {"kind": "program", "code": r'assert f("\w") == "\d"', "setup": ESCAPES},
        {"kind": "checker", "input": "", "checker": f"{ESCAPES}\nprint(1)"},
    ],
)
def test_tests_may_be_written_so(test):
    assert len(read_suite([test], Limits()).tests) == 1


def test_a_checker_may_be_written_so():
    assert read_checker(ESCAPES).form == "script"
