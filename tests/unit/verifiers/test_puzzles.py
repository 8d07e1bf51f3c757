"""The verifiers `countdown` and `reasoning_gym`."""

from __future__ import annotations

import importlib.util
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifiers.arithmetic import Operation, evaluate, find_numbers, read_expression
from verifiers.countdown import CountdownVerifier
from verifiers.errors import BadReference, UserError
from verifiers.problem import Problem, Submission
from verifiers.registry import build_verifier
from verifiers.verdict import Reason, Status

PUZZLE = {"numbers": [3, 3, 7, 8], "target": 24}
FAKE = """
def get_score_answer_fn(name):
    if name != "sums":
        raise ValueError(f"Dataset '{name}' not registered")

    def score_answer(answer, entry):
        if answer == "crash":
            raise RuntimeError("boom")
        while answer == "hang":
            pass
        if answer == "nan":
            return float("nan")
        return 1.0 if answer == entry["answer"] else 0.01

    return score_answer
"""


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("3 * 8", Reason.EQUAL_EXACT),
        ("(3 / 3 + 7) * 8 - 8 * 5", Reason.REJECTED),
        ("8 / (3 - 7 / 3)", Reason.DIFFERENT),
        ("8 * 3 * (3 / 3)", Reason.REJECTED),
        ("(7 - 3) * (8 - 3) + 4", Reason.REJECTED),
        ("8 * 3 = 24", Reason.EQUAL_EXACT),
        ("8 + 3 = 24", Reason.DIFFERENT),
        ("24 = 8 * 3", Reason.UNPARSED),
        ("24", Reason.REJECTED),
        (r"8 \times 3", Reason.EQUAL_EXACT),
        (r"8 \cdot \left(7 - 3\right) - 8", Reason.REJECTED),
        (r"\frac{8}{3} \times 3 \times 3", Reason.REJECTED),
        (r"\frac{8 \cdot 3}{7 - 3} + 3", Reason.REJECTED),
        ("8 \N{MULTIPLICATION SIGN} 3", Reason.EQUAL_EXACT),
        ("8 / 0", Reason.REJECTED),
        ("7 / (3 - 3)", Reason.REJECTED),
        ("8 ** 3", Reason.UNPARSED),
        ("8 // 3", Reason.UNPARSED),
        ("8(3)", Reason.UNPARSED),
        ("8 3", Reason.UNPARSED),
        ("-8 + 3", Reason.UNPARSED),
        ("8 * 3 or 24", Reason.UNPARSED),
        ("37 - 8", Reason.REJECTED),
        ("3.0 * 8", Reason.UNPARSED),
        ("٣ * 8", Reason.UNPARSED),
        ("", Reason.EMPTY_ANSWER),
        ("__import__('os')", Reason.UNPARSED),
        ("(" * 300 + "8 * 3" + ")" * 300, Reason.UNPARSED),
        ("1+" * 450 + "1", Reason.UNPARSED),
        ("8 * 3" + " " * 1000 + "+ 0 * 1", Reason.TOO_LONG),
        ("9" * 999, Reason.REJECTED),
    ],
)
def test_countdown_counts_every_number_and_values_exactly(judge_with, answer, reason):
    assert judge_with("countdown", PUZZLE, f"\\boxed{{{answer}}}").reason == reason


def test_division_is_exact(judge_with):
    puzzle = {"numbers": [8, 3, 8, 3], "target": 24}
    assert judge_with("countdown", puzzle, r"\boxed{8/(3-8/3)}").status is Status.CORRECT
    near = {"numbers": [10, 3, 3], "target": 3}
    assert judge_with("countdown", near, r"\boxed{10/3}").reason is Reason.DIFFERENT


def test_every_number_once_by_option(judge_with):
    some = judge_with("countdown", PUZZLE, r"\boxed{3 * 8}", use_all=True)
    assert (some.reason, some.detail) == (Reason.REJECTED, "not used: 3, 7")
    every = judge_with("countdown", PUZZLE, r"\boxed{(3 * 7 + 3)/8}", use_all=True)
    assert every.detail == "the value is 3"


@pytest.mark.parametrize(
    ("reference", "columns", "options"),
    [
        ([4, 6], {}, {"target": 24}),
        ("[4, 6]", {}, {"target": 24}),
        ('{"numbers": [4, 6], "target": 24}', {}, {}),
        (24, {"nums": [4, 6]}, {}),
        ("24", {"given": [4, 6]}, {"numbers_column": "given"}),
        ({"numbers": [4, 6]}, {}, {"target": 24}),
    ],
)
def test_rows_of_several_kinds(judge_with, reference, columns, options):
    verdict = judge_with("countdown", reference, r"\boxed{4*6}", columns=columns, **options)
    assert verdict.status is Status.CORRECT


@pytest.mark.parametrize(
    "reference",
    ["24", 24, [], [4, 6], {"numbers": [4, -6], "target": 24}, {"numbers": [True], "target": 1},
     {"numbers": [4], "target": "4"}, {"numbers": [1.5], "target": 3}, "[4", None,
     {"numbers": [1] * 65, "target": 2}],
)  # fmt: skip
def test_a_row_without_a_puzzle_is_found_before_training(judge_with, reference):
    with pytest.raises(BadReference, match="rows:1"):
        judge_with("countdown", reference, "x")


EXPRESSIONS = st.recursive(
    st.integers(0, 99),
    lambda inner: st.builds(Operation, st.sampled_from("+-*/"), inner, inner),
    max_leaves=12,
)


def write(tree):
    if isinstance(tree, int):
        return str(tree)
    return f"({write(tree.left)} {tree.operator} {write(tree.right)})"


@given(EXPRESSIONS)
def test_a_written_tree_is_read_back_and_reaches_its_own_value(tree):
    assert read_expression(write(tree)) == tree
    try:
        value = evaluate(tree)
    except ZeroDivisionError:
        return
    if value.denominator != 1:
        return
    reference = {"numbers": find_numbers(tree), "target": int(value)}
    problem = Problem(id="p", prompt="", verifier="countdown", reference=reference, source="rows:1")
    verifier = CountdownVerifier(use_all=True)
    right = Submission(problem=problem, completion=f"\\boxed{{{write(tree)}}}")
    wrong = Submission(problem=problem, completion=f"\\boxed{{{write(tree)} + 0}}")
    assert verifier.verify(right).status is Status.CORRECT
    assert verifier.verify(wrong).status is Status.INCORRECT


@given(st.text(alphabet="()0123456789+-*/ ={}$\\frac"))
def test_any_text_gets_a_verdict(text):
    problem = Problem(id="p", prompt="", verifier="countdown", reference=PUZZLE, source="rows:1")
    verdict = CountdownVerifier(extraction="whole").verify(
        Submission(problem=problem, completion=text)
    )
    assert verdict.verified


@pytest.fixture
def fake_gym(monkeypatch, tmp_path):
    (tmp_path / "reasoning_gym.py").write_text(FAKE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "reasoning_gym", raising=False)


def gym_columns(dataset="sums"):
    return {"metadata": {"source_dataset": dataset}}


@pytest.mark.parametrize(
    ("answer", "status", "reason", "score"),
    [
        ("4", Status.CORRECT, Reason.ACCEPTED, 1.0),
        ("5", Status.INCORRECT, Reason.REJECTED, 0.0),
        ("crash", Status.ERROR, Reason.VERIFIER_RAISED, None),
        ("nan", Status.ERROR, Reason.VERIFIER_RAISED, None),
        ("x" * 20_001, Status.LIMIT, Reason.TOO_LONG, 0.0),
        ("", Status.NO_ANSWER, Reason.EMPTY_ANSWER, 0.0),
    ],
)
def test_a_data_set_of_reasoning_gym_scores(judge_with, fake_gym, answer, status, reason, score):
    completion = f"<answer>{answer}</answer>"
    verdict = judge_with("reasoning_gym", "4", completion, columns=gym_columns())
    assert (verdict.status, verdict.reason, verdict.score) == (status, reason, score)


def test_a_floor_for_any_text_counts_only_when_asked_for(judge_with, fake_gym):
    arguments = ("reasoning_gym", "4", "<answer>no idea</answer>")
    plain = judge_with(*arguments, columns=gym_columns())
    partial = judge_with(*arguments, columns=gym_columns(), partial=True)
    assert (plain.score, partial.score) == (0.0, 0.01)
    assert plain.components == partial.components == {"score_answer": 0.01}
    assert partial.status is Status.INCORRECT


def test_an_answer_that_hangs_its_data_set_is_a_limit(judge_with, fake_gym):
    started = time.perf_counter()
    verdict = judge_with(
        "reasoning_gym", "4", "<answer>hang</answer>", columns=gym_columns(), cpu_limit_s=0.3
    )
    assert (verdict.status, verdict.reason) == (Status.LIMIT, Reason.DEADLINE)
    assert time.perf_counter() - started < 10


@pytest.mark.parametrize(
    ("reference", "columns", "why"),
    [
        ("4", {}, "no metadata"),
        ("4", {"metadata": {}}, "names the data set"),
        ("4", gym_columns("sumz"), "not registered"),
        ("4", {"metadata": "{"}, "no JSON"),
        ("crash", gym_columns(), "boom"),
        ({"metadata": {"source_dataset": "sums"}}, {}, "or no answer"),
    ],
)
def test_a_row_that_is_no_entry_is_found_before_training(
    judge_with, fake_gym, reference, columns, why
):
    with pytest.raises(BadReference, match=f"rows:1.*{why}"):
        judge_with("reasoning_gym", reference, "x", columns=columns)


def test_without_the_package_the_message_says_what_to_install(monkeypatch, judge_with):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"verigrad\[reasoning-gym\]"):
        judge_with("reasoning_gym", "4", "x")


def test_real_data_sets_find_their_own_answers_right_and_no_other():
    gym = pytest.importorskip("reasoning_gym", reason="the extra reasoning-gym is not installed")
    verifier = build_verifier("reasoning_gym", {})
    for dataset in ("chain_sum", "countdown", "knights_knaves", "word_sorting"):
        for entry in list(gym.create_dataset(dataset, size=2, seed=1)):
            problem = Problem(
                id="p", prompt="", verifier="reasoning_gym", reference=entry, source="rows:1"
            )
            verifier.prepare(problem)
            for answer, score in ((entry["answer"], 1.0), ("no idea", 0.0)):
                completion = f"<answer>{answer}</answer>"
                verdict = verifier.verify(Submission(problem=problem, completion=completion))
                assert verdict.score == score, (dataset, verdict)
    verifier.close()
