"""The verifiers `exact`, `choice` and `numeric`."""

from __future__ import annotations

import pytest

from verifiers.errors import BadReference
from verifiers.verdict import Reason, Status

OPTIONS = {"choices": ["four", "five", "six"]}


@pytest.mark.parametrize(
    ("reference", "answer", "options", "right"),
    [
        ("Paris", "the paris.", {}, True),
        ("Paris", "the paris.", {"strict": True}, False),
        ("Paris", "Paris", {"strict": True}, True),
        (["NYC", "New York"], "new york", {}, True),
        ("Paris", "Paris, London", {}, False),
        ("Paris", "not Paris", {}, False),
        (7, "7", {}, True),
        ("-5", "5", {}, False),
    ],
)
def test_exact(judge_with, reference, answer, options, right):
    verdict = judge_with("exact", reference, f"\\boxed{{{answer}}}", **options)
    assert (verdict.status is Status.CORRECT) == right, verdict


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("B", Reason.EQUAL_EXACT),
        ("(b)", Reason.EQUAL_EXACT),
        ("B. five", Reason.EQUAL_EXACT),
        ("B) five", Reason.EQUAL_EXACT),
        ("\\text{(B)}", Reason.EQUAL_EXACT),
        ("five", Reason.EQUAL_EXACT),
        ("A", Reason.DIFFERENT),
        ("six", Reason.DIFFERENT),
        ("A, B", Reason.UNPARSED),
        ("B or C", Reason.UNPARSED),
        ("(B) and (C)", Reason.UNPARSED),
        ("Because", Reason.UNPARSED),
        ("B rectangle", Reason.UNPARSED),
        ("D", Reason.UNPARSED),
    ],
)
def test_choice(judge_with, answer, reason):
    verdict = judge_with("choice", "B", f"\\boxed{{{answer}}}", columns=OPTIONS)
    assert verdict.reason == reason, verdict


def test_choice_by_index_and_by_mapping(judge_with):
    assert judge_with("choice", 1, "\\boxed{B}", columns=OPTIONS).status is Status.CORRECT
    mapping = {"choices": {"a": "four", "b": "five"}}
    assert judge_with("choice", "b", "\\boxed{five}", columns=mapping).status is Status.CORRECT


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("12.5", Reason.EQUAL_EXACT),
        ("25/2", Reason.EQUAL_EXACT),
        ("12.5 m", Reason.EQUAL_EXACT),
        ("1250 \\text{ cm}", Reason.EQUAL_EXACT),
        ("x = 12.5", Reason.EQUAL_EXACT),
        ("12.5000001", Reason.EQUAL_TOLERANCE),
        ("12.6", Reason.DIFFERENT),
        ("-12.5", Reason.DIFFERENT),
        ("12.5 \\text{ s}", Reason.DIFFERENT),
        ("7 = 12.5", Reason.UNPARSED),
        ("12.5 \\text{ or } 13", Reason.UNPARSED),
        ("9^{9^9}", Reason.UNPARSED),
    ],
)
def test_numeric(judge_with, answer, reason):
    assert judge_with("numeric", "12.5 m", f"\\boxed{{{answer}}}").reason == reason


def test_numeric_tolerances_and_units(judge_with):
    assert judge_with("numeric", "100", "\\boxed{101}", rel_tol=0.02).status is Status.CORRECT
    assert judge_with("numeric", "0", "\\boxed{0.01}", abs_tol=0.1).status is Status.CORRECT
    missing = judge_with("numeric", "5 \\text{ m}", "\\boxed{5}", require_unit=True)
    assert missing.status is Status.INCORRECT


@pytest.mark.parametrize(
    ("spec", "reference"),
    [("exact", {}), ("exact", []), ("exact", " "), ("choice", "Z9"), ("numeric", "many"),
     ("math", "\\begin{cases}"), ("math", None), ("math", True), ("math", ["4"])],
)  # fmt: skip
def test_a_reference_that_cannot_be_read_is_found_before_training(judge_with, spec, reference):
    with pytest.raises(BadReference, match="rows:1"):
        judge_with(spec, reference, "x")
