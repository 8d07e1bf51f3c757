"""Pairs of reference and answer, of every kind that is told apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from verifiers.verdict import Reason, Status

ROWS = [
    json.loads(line)
    for line in Path(__file__).with_name("math_pairs.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("row", ROWS, ids=lambda r: f"{r['gold']} <- {r['answer']}")
def test_pair_gets_its_verdict(judge_math, row):
    verdict = judge_math(row["gold"], f"So it is \\boxed{{{row['answer']}}}.")
    assert verdict.verified, verdict
    assert (verdict.status is Status.CORRECT) == row["right"], verdict


@pytest.mark.parametrize("gold", sorted({row["gold"] for row in ROWS}))
def test_every_reference_is_right_against_itself(judge_math, gold):
    verdict = judge_math(gold, f"\\boxed{{{gold}}}")
    assert (verdict.status, verdict.reason) == (Status.CORRECT, Reason.EQUAL_TEXT)


@pytest.mark.parametrize(
    ("gold", "answer", "reason"),
    [
        ("0.5", "\\frac12", Reason.EQUAL_EXACT),
        ("\\frac{1}{\\sqrt2}", "\\frac{\\sqrt2}{2}", Reason.EQUAL_SYMBOLIC),
        ("12.7", "\\frac{38}{3}", Reason.EQUAL_TOLERANCE),
        ("5", "6", Reason.DIFFERENT),
        ("5", "(5, 6)", Reason.TYPE_MISMATCH),
        ("391", "17 \\times 23", Reason.UNEVALUATED),
        ("5", "\\neq 5", Reason.UNPARSED),
    ],
)
def test_reason_says_why(judge_math, gold, answer, reason):
    assert judge_math(gold, f"\\boxed{{{answer}}}").reason == reason


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        (r"\sum_{k=1}^{n} k", r"\frac{n(n+1)}{2}", True),
        (r"\sum_{k=1}^{n} k", r"\frac{n(n-1)}{2}", False),
        (r"\lfloor 3.5 \rfloor", "3", True),
        (r"\sum_{k=1}^{n} k", "4 9", False),
    ],
)
def test_calculus_in_a_reference_is_left_to_sympy(judge_math, gold, answer, right):
    # Importing sympy counts as wall time only, so a slow machine needs patience, not luck.
    verdict = judge_math(gold, f"\\boxed{{{answer}}}", wall_limit_s=60.0, cpu_limit_s=20.0)
    assert (verdict.status is Status.CORRECT) == right, verdict


@pytest.mark.parametrize(
    ("gold", "answer", "option", "default"),
    [
        ("12.7", "\\frac{38}{3}", {"gold_digits": False}, True),
        ("\\sqrt2", "1.414", {"rel_tol": 1e-3}, False),
        ("391", "17 \\times 23", {"allow_unevaluated": True}, False),
        ("35\\%", "35", {"percent_bridge": False}, True),
        ("10", "10 \\text{ cm}", {"unit_bridge": False}, True),
        ("60^\\circ", "\\frac{\\pi}{3}", {"degree_bridge": False}, True),
        ("5 \\text{ m}", "500 \\text{ cm}", {"unit_conversion": False}, True),
        ("2:3", "\\frac{2}{3}", {"ratio_bridge": True}, False),
        ("5", "101_2", {"base_bridge": False}, True),
        ("(2, 7.5)", "2 < x < 7.5", {"interval_bridge": False}, True),
        ("\\begin{pmatrix}1\\\\2\\end{pmatrix}", "(1,2)", {"vector_bridge": False}, True),
        ("\\sqrt{\\frac{4}{m}}", "\\frac{2}{\\sqrt{m}}", {"assume_positive": True}, False),
        ("x^2+C", "x^2+K", {"constant_names": False}, True),
        ("42", "42 \\text{ (not sure)}", {"ignore_trailing_text": True}, False),
    ],
)
def test_each_option_turns_its_case_round(judge_math, gold, answer, option, default):
    completion = f"\\boxed{{{answer}}}"
    assert (judge_math(gold, completion).status is Status.CORRECT) == default
    assert (judge_math(gold, completion, **option).status is Status.CORRECT) != default


def test_a_unit_spelled_out_is_equal_without_conversion(judge_math):
    verdict = judge_math("5 \\text{ cm}", "\\boxed{5 \\text{ centimetres}}", unit_conversion=False)
    assert verdict.status is Status.CORRECT


@pytest.mark.parametrize(
    ("completion", "at_end"),
    [
        ("So \\boxed{42}.", True),
        ("$$\\boxed{42}$$ **", True),
        ("\\boxed{41}, no: \\boxed{42}", True),
        ("Use \\boxed{42}? No, the result is 7.", False),
        ("\\boxed{42} or 43", False),
    ],
)
def test_a_box_that_must_be_at_the_end(judge_math, completion, at_end):
    assert judge_math("42", completion).status is Status.CORRECT
    verdict = judge_math("42", completion, box_at_end=True)
    expected = (
        (Status.CORRECT, Reason.EQUAL_TEXT) if at_end else (Status.NO_ANSWER, Reason.NOT_AT_END)
    )
    assert (verdict.status, verdict.reason) == expected
