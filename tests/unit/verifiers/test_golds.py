"""References tried out: what kind they are, and answers that are wrong."""

from __future__ import annotations

import pytest

from verifiers.golds import make_twins
from verifiers.maths.kinds import name_kind


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
