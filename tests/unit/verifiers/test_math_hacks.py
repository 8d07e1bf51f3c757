"""Ways to be paid for a wrong answer: none of them pays."""

from __future__ import annotations

import time

import pytest

from verifiers.verdict import Reason, Status

NO, WRONG, RIGHT = Status.NO_ANSWER, Status.INCORRECT, Status.CORRECT


@pytest.mark.parametrize(
    ("gold", "completion", "status", "reason"),
    [
        ("42", r"\boxed{1} \boxed{2} \boxed{42}", NO, Reason.MULTIPLE_ANSWERS),
        ("42", r"\boxed{41} or \boxed{42}", NO, Reason.MULTIPLE_ANSWERS),
        ("2,6,9", r"\boxed{2}, \boxed{6}, \boxed{9}", RIGHT, None),
        ("42", r"\boxed{42} and again \boxed{42}", RIGHT, None),
        ("42", r"\boxed{41} was the first guess, so \boxed{42}", RIGHT, None),
        ("1", "The answer is 1 or 2 or 3", NO, Reason.NO_BOX),
        ("1", r"\boxed{1 \text{ or } 2}", WRONG, Reason.TYPE_MISMATCH),
        ("1", r"\boxed{1, 2, 3}", WRONG, Reason.TYPE_MISMATCH),
        ("42", r"\boxed{42 \text{ (not sure)}}", WRONG, Reason.UNPARSED),
        ("4", r"There are 4 apples. \boxed{}", NO, Reason.EMPTY_ANSWER),
        ("4", r"There are 4 apples. \boxed{?}", NO, Reason.EMPTY_ANSWER),
        ("5", r"Put the answer in \boxed{}. I think it is 5", NO, Reason.EMPTY_ANSWER),
        ("42", r"<think>\boxed{42}</think> done", NO, Reason.NO_BOX),
        ("42", r"<think>\boxed{42}</think> so \boxed{7}", WRONG, Reason.DIFFERENT),
        ("42", r"<think> \boxed{42}", NO, Reason.UNFINISHED_REASONING),
        ("42", r"<think>a</think> <think>b \boxed{42}", NO, Reason.UNFINISHED_REASONING),
        ("42", r"final answer is 42. I hope it is correct. \boxed{7}", WRONG, Reason.DIFFERENT),
        ("391", r"\boxed{17 \times 23}", WRONG, Reason.UNEVALUATED),
        ("5050", r"\boxed{\sum_{i=1}^{100} i}", WRONG, Reason.UNPARSED),
        ("42", r"\boxed{3 = 42}", WRONG, Reason.DIFFERENT),
        ("42", r"\boxed{x = 7 = 42}", WRONG, Reason.DIFFERENT),
        ("42", r"\boxed{\neq 42}", WRONG, Reason.UNPARSED),
        ("42", r"\boxed{\geq 42}", WRONG, Reason.UNPARSED),
        ("42", r"\boxed{\neg 42}", WRONG, Reason.UNPARSED),
        ("42", r"\boxed{\lg 42}", WRONG, Reason.DIFFERENT),
        ("42", r"\boxed{7 \bmod 42}", WRONG, Reason.UNPARSED),
        ("42", r"\boxed{n=42k, k\in \mathbb{Z}}", WRONG, None),
        (r"\{1,2,3\}", r"\boxed{\mathbb{R}}", WRONG, None),
        (r"\{1,2,3\}", r"\boxed{\{1,2,3,4,5\}}", WRONG, None),
        ("x>3", r"\boxed{x>3 \text{ or } x \le 3}", WRONG, None),
        ("5", r"\boxed{x}", WRONG, Reason.DIFFERENT),
        ("x^2+y^2+1=0", r"\boxed{x^2+5=0}", WRONG, None),
        ("x^2+1=0", r"\boxed{x^2+2=0}", WRONG, None),
        (r"1.6\times10^{-19}", r"\boxed{9.1\times10^{-31}}", WRONG, None),
        (r"10 \text{ A.M.}", r"\boxed{10 \text{ P.M.}}", WRONG, None),
        ("6", r"\boxed{6\sqrt(5)}", WRONG, None),
        ("42", "Problem 42 is hard", NO, Reason.NO_BOX),
        ("42", r"\boxed{42", NO, Reason.NO_BOX),
    ],
)
def test_hack(judge_math, gold, completion, status, reason):
    verdict = judge_math(gold, completion)
    assert verdict.status == status, verdict
    assert reason is None or verdict.reason == reason, verdict


def test_unique_box_refuses_different_boxes_far_apart(judge_math):
    completion = r"\boxed{41} was the first guess, so \boxed{42}"
    verdict = judge_math("42", completion, unique_box=True)
    assert (verdict.status, verdict.reason) == (NO, Reason.MULTIPLE_ANSWERS)


def test_a_truncated_completion_has_no_answer_unless_allowed(judge_math):
    verdict = judge_math("42", r"\boxed{42}", truncated=True)
    assert (verdict.status, verdict.score, verdict.reason) == (NO, 0.0, Reason.TRUNCATED)
    allowed = judge_math("42", r"\boxed{42}", truncated=True, allow_truncated=True)
    assert allowed.status == RIGHT


BOMBS = [
    "9**9**9",
    "9^{9^9}",
    "5^{5^{5^{5^5}}}",
    "(10^{10})!",
    "10000000!",
    "10!!!",
    r"\binom{10^9}{5\cdot10^8}",
    "2^{10^{10}}",
    "10^{-10^{10}}",
    r"7^{7^{7^7}} \mod 10",
    r"\sum_{k=1}^{10^9} k",
    r"\int_0^1 e^{\sin(x^x)}dx",
    "(" * 300 + "7" + ")" * 300 + "+1",
    r"\frac{1}{" * 200 + "1" + "}" * 200,
    r"\{" * 200 + "1" + r"\}" * 200,
    "x" + "_x" * 200,
    r"\sqrt" * 900 + "2",
    r"\sin" * 900 + "2",
    "+".join(f"x^{{{i}}}" for i in range(500)),
    ",".join(map(str, range(1200))),
    "((1,2)," * 200 + "3" + ")" * 200,
    "1 " * 2400,
    "9" * 4500,
    "0." + "3" * 4500,
    "0." + "18" * 2000 + r"\ldots",
    "a" * 4900,
    "|" * 4900,
    "-" * 4900,
    "{" * 2000 + "}" * 2000,
    r"\sqrt{2}^{\sqrt{2}^{\sqrt{2}^{\sqrt{2}^{9^{9}}}}}",
    "e^{e^{e^{e^{e^{e}}}}}",
    r"\sqrt{" + "9" * 4000 + "}",
    "__import__('os').system('true')",
]


def test_cost_attacks_end_soon_and_leave_a_working_verifier(judge_math):
    judge_math("\\sqrt2+1", "\\boxed{1+\\sqrt2+0}")  # starts the worker
    started = time.monotonic()
    for bomb in BOMBS:
        verdict = judge_math("7", f"\\boxed{{{bomb}}}")
        assert verdict.status in (WRONG, Status.LIMIT, NO), (bomb[:40], verdict)
        good = judge_math("7", "\\boxed{7.0}")
        assert good.status == RIGHT
    assert time.monotonic() - started < 30


def test_a_bomb_against_a_symbolic_reference_is_a_limit_not_an_error(judge_math):
    gold = r"\sqrt{2}"
    verdict = judge_math(gold, r"\boxed{\sqrt{2}^{9^{9^{9}}}}", cpu_limit_s=0.5)
    assert verdict.verified, verdict
    assert verdict.score == 0.0
    assert judge_math(gold, r"\boxed{\frac{2}{\sqrt2}}", cpu_limit_s=0.5).status == RIGHT


def test_huge_equal_towers_are_equal(judge_math):
    assert judge_math("9^{9^{9}}", r"\boxed{9^{9^9}}").status == RIGHT


@pytest.mark.parametrize(
    "filler",
    ["1 ", r"\[ ", "answer ", r"\boxed{", "}", "<answer>", "<think>", "$", "\\\\", "####\n", "{"],
)
def test_extraction_is_linear_in_the_length_of_a_completion(judge_math, filler):
    text = filler * (200_000 // len(filler))
    for policy in ("boxed", "answer_tag", "hash", "answer_line", "last_number", "lenient"):
        started = time.monotonic()
        judge_math("1", text, extraction=policy)
        assert time.monotonic() - started < 2.0, policy


def test_hash_seed_does_not_change_verdicts():
    """Probe points and unordered matching depend on sorted names only."""
    import subprocess
    import sys

    program = (
        "from verifiers.maths.reader import read_answer\n"
        "from verifiers.maths.compare import compare\n"
        "from verifiers.maths.options import MathOptions\n"
        "from verifiers.maths.symbolic import FullEquality\n"
        "e = FullEquality(assume_positive=False)\n"
        "pairs = [('a+b+c', 'c+b+a'), ('{x,y,z}', '{z,x}'), ('x^2+y=1', '2y+2x^2=2')]\n"
        "print([compare(read_answer(a), read_answer(b), MathOptions(), e) for a, b in pairs])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(outputs) == 1
