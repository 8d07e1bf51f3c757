import pytest

from sandbox.errors import BadTest
from sandbox.limits import Limits
from sandbox.suite import FunctionTest, StdioTest
from sandbox.suite_reader import read_suite

DEFAULTS = Limits()
STDIO = {"kind": "stdio", "input": "1", "output": "2"}
FUNCTION = {"kind": "function", "entry_point": "f", "args": [1], "expected": 2}


def test_a_list_of_tests_is_enough():
    suite = read_suite(
        [STDIO, FUNCTION, {"kind": "assert", "code": "assert f(1) == 2\nassert f(2) == 3"}],
        DEFAULTS,
    )
    assert len(suite.tests) == 4
    assert isinstance(suite.tests[0], StdioTest)
    assert isinstance(suite.tests[1], FunctionTest)
    assert suite.limits == DEFAULTS


def test_what_tests_have_in_common_stands_beside_them():
    suite = read_suite(
        {
            "kind": "function",
            "entry_point": "f",
            "preamble": "import math",
            "limits": {"cpu_s": 2, "memory_mb": 64},
            "tests": [{"args": [1], "expected": 2}, {"entry_point": "g", "expected": None}],
        },
        Limits(wall_s=100),
    )
    first, second = suite.tests
    assert isinstance(first, FunctionTest)
    assert isinstance(second, FunctionTest)
    assert (first.call.function, second.call.function) == ("f", "g")
    assert suite.preamble == "import math"
    assert (suite.limits.cpu_s, suite.limits.wall, suite.limits.memory_mb) == (2, 6, 64)


def test_the_preamble_comes_first_but_for_imports_from_the_future():
    suite = read_suite({"preamble": "import math", "tests": [STDIO]}, DEFAULTS)
    assert suite.source("print(1)") == "import math\nprint(1)"
    program = '"""Doc."""\nfrom __future__ import annotations\nprint(math.pi)\n'
    compile(suite.source(program), "program", "exec")
    assert read_suite([STDIO], DEFAULTS).source(program) == program


def test_comparers_are_inherited_and_overridden():
    own = {**STDIO, "output": ["2", "3"], "compare": {"kind": "floats", "abs": 0.1}}
    suite = read_suite({"compare": "tokens", "tests": [STDIO, own]}, DEFAULTS)
    first, second = suite.tests
    assert isinstance(first, StdioTest)
    assert isinstance(second, StdioTest)
    assert first.comparer.kind == "tokens"
    assert (second.comparer.kind, second.comparer.abs_tol) == ("floats", 0.1)
    assert second.expected == ("2", "3")


@pytest.mark.parametrize(
    ("reference", "named"),
    [
        ("text", "the reference"),
        (None, "the reference"),
        ([], "tests"),
        ({"tests": {}}, "tests"),
        ({"tests": [STDIO], "test": 1}, "unknown key test"),
        ([3], "tests[0].kind"),
        ([{"kind": "pytest"}], "tests[0].kind"),
        ([STDIO, {**STDIO, "input": 3}], "tests[1].input"),
        ([{"kind": "stdio", "output": "2"}], "tests[0].input"),
        ([{"kind": "stdio", "input": "2"}], "tests[0].output"),
        ([{**STDIO, "output": []}], "tests[0].output"),
        ([{**STDIO, "output": [1]}], "tests[0].output"),
        ([{**STDIO, "inputs": ""}], "unknown key inputs"),
        ([{**STDIO, "compare": "fuzzy"}], "tests[0].compare"),
        ([{**STDIO, "compare": {"kind": "floats", "abs": -1}}], "tests[0].compare.abs"),
        ([{**STDIO, "compare": {"kind": "lines", "ignore_case": 1}}], "ignore_case"),
        ([{"kind": "function", "args": [1], "expected": 2}], "tests[0].entry_point"),
        ([{"kind": "function", "entry_point": "f", "args": [1]}], "one of expected and any_of"),
        ([FUNCTION | {"any_of": [2]}], "one of expected and any_of"),
        ([{"kind": "function", "entry_point": "f", "any_of": []}], "tests[0].any_of"),
        ([{**FUNCTION, "args": 1}], "tests[0].args"),
        ([{**FUNCTION, "kwargs": [1]}], "tests[0].kwargs"),
        ([{**FUNCTION, "args": [object()]}], "cannot cross"),
        ([{**FUNCTION, "abs": "x"}], "tests[0].abs"),
        ([{"kind": "assert", "code": "assert f(1"}], "tests[0].code"),
        ([{"kind": "assert"}], "tests[0].code"),
        ({"tests": [STDIO], "limits": {"cpu_s": 0}}, "cpu_s"),
        ({"tests": [STDIO], "limits": {"cpu_s": "4"}}, "limits.cpu_s"),
        ({"tests": [STDIO], "limits": {"seconds": 4}}, "unknown key seconds"),
        ({"tests": [STDIO], "preamble": 3}, "preamble"),
    ],
)
def test_a_bad_reference_is_named_by_its_path(reference, named):
    with pytest.raises(BadTest) as caught:
        read_suite(reference, DEFAULTS)
    assert named in str(caught.value)
