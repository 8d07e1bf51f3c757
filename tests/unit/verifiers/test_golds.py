"""References tried out: what kind they are, and answers that are wrong."""

from __future__ import annotations

from fractions import Fraction

import pytest

from verifiers.arithmetic import evaluate, read_expression
from verifiers.countdown_solver import find_expression
from verifiers.gold_trials import make_twins
from verifiers.golds import Fault, check_gold
from verifiers.judge import Judge
from verifiers.maths.kinds import name_kind
from verifiers.problem import Problem


@pytest.mark.parametrize(
    ("reference", "kind"),
    [
        ("42", "integer"),
        ("-\\frac{4}{2}", "integer"),
        ("2\\frac12", "rational"),
        ("0.50", "decimal"),
        ("50\\%", "percent"),
        ("2\\sqrt3", "closed form"),
        ("3+4i", "complex"),
        ("5 \\text{ cm}", "quantity with a unit"),
        ("x^2+1", "expression"),
        ("y=2x", "equation"),
        ("1<x\\le2", "inequality"),
        ("(1,2]", "interval"),
        ("(1,2)", "tuple"),
        ("1, 2", "list"),
        ("\\{1,2\\}", "set"),
        ("\\begin{pmatrix}1\\\\2\\end{pmatrix}", "matrix"),
        ("3120_4", "number in a base"),
        ("9:30", "clock time"),
        ("1:2", "ratio"),
        ("\\text{(B)}", "choice"),
        ("\\text{Monday}", "text"),
        ("\\sum_{k=1}^{n} k", "calculus"),
        ("\\begin{cases}", "unreadable"),
    ],
)
def test_kinds(reference, kind):
    assert name_kind(reference) == kind


@pytest.mark.parametrize(
    ("answers", "twins"),
    [
        (["42"], ["85"]),
        (["\\frac{3}{4}"], ["\\frac{7}{4}", "\\frac{3}{9}"]),
        (["(B)"], ["(A)"]),
        (["A"], ["B"]),
        (["\\pi"], ["7919"]),
        (["5", "11"], ["7919"]),
    ],
)
def test_twins_are_other_answers(answers, twins):
    assert make_twins(answers) == twins


@pytest.mark.parametrize(
    ("verifier", "reference", "columns", "fault"),
    [
        ("regex", "[0-9]+", {"solution": "17"}, None),
        ("regex", "[0-9]+", {"solution": "x17"}, Fault.FAILS_ITSELF),
        ("regex", "(?s).*", {"solution": "17"}, Fault.ACCEPTS_ANOTHER),
        ("regex", "[", {}, Fault.UNREADABLE),
        ("json_schema", {"const": [1, 2]}, {}, None),
        ("json_schema", {"type": "integer", "examples": [7]}, {}, None),
        ("json_schema", {"type": "integer", "examples": ["7"]}, {}, Fault.FAILS_ITSELF),
        ("json_schema", {"type": "integer"}, {"solution": 7.5}, Fault.FAILS_ITSELF),
        ("json_schema", {"title": "anything"}, {}, Fault.ACCEPTS_ANOTHER),
        ("countdown", {"numbers": [3, 3, 8, 8], "target": 24}, {}, None),
        ("countdown", {"numbers": [1, 1, 1, 1], "target": 24}, {}, Fault.FAILS_ITSELF),
        ("countdown", {"numbers": [5, 7], "target": 12}, {"solution": "5 + 7"}, None),
        ("countdown", {"numbers": [5, 7], "target": 12}, {"solution": "5 * 7"}, Fault.FAILS_ITSELF),
    ],
)
def test_references_of_other_verifiers_are_tried_too(verifier, reference, columns, fault):
    judge = Judge({verifier: {}})
    problem = Problem(
        id="p", prompt="", verifier=verifier, reference=reference, source="rows:1", columns=columns
    )
    check = check_gold(problem, judge, {})
    judge.close()
    assert check.fault == fault, check
    assert check.tried == (fault is not Fault.UNREADABLE)


def test_without_a_solution_a_pattern_is_only_read():
    judge = Judge({"regex": {}})
    problem = Problem(id="p", prompt="", verifier="regex", reference="a+", source="rows:1")
    check = check_gold(problem, judge, {})
    assert (check.tried, check.fault) == (False, None)
    judge.close()


@pytest.mark.parametrize("numbers", [[3, 3, 8, 8], [1, 2, 3, 4, 5], [7]])
def test_the_solver_finds_what_is_there_and_says_when_nothing_is(numbers):
    target = {4: 24, 5: 29, 1: 7}[len(numbers)]
    found = find_expression(numbers, target, use_all=True)
    assert found is not None
    assert evaluate(read_expression(found)) == Fraction(target)
    assert find_expression(numbers, 10**9, use_all=False) is None
