"""Mathematical answers under random texts and random expressions."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from verifiers.extraction import find_answer
from verifiers.maths.answers import Quantity
from verifiers.maths.cleanup import clean
from verifiers.maths.compare import compare
from verifiers.maths.exact import evaluate
from verifiers.maths.expressions import Unreadable
from verifiers.maths.options import MathOptions
from verifiers.maths.reader import read_answer
from verifiers.maths.symbolic import FullEquality, compare_fully
from verifiers.problem import Problem, Submission
from verifiers.registry import build_verifier

OPTIONS = MathOptions()
_PIECES = r"""
\frac \sqrt { } ( ) [ ] ^ _ , ; : 1 2 0.5 x y i e \pi \infty \le < = \in \cup \text{or} \text{cm} %
\% ! | ' & \\ \{ \} \pm \circ \begin{pmatrix} \end{pmatrix} \mathbb{R} A
"""
PIECES = _PIECES.split()

nonzero = st.integers(-30, 30).filter(bool)


@st.composite
def expressions(draw, depth=3):
    """LaTeX of a rational expression with its value."""
    if depth == 0 or draw(st.booleans()):
        value = draw(st.integers(0, 30))
        return str(value), Fraction(value)
    left, a = draw(expressions(depth=depth - 1))
    right, b = draw(expressions(depth=depth - 1))
    match draw(st.sampled_from("+-*/^")):
        case "+":
            return f"({left}+{right})", a + b
        case "-":
            return f"\\left({left} - {right}\\right)", a - b
        case "*":
            return f"({left}) \\cdot ({right})", a * b
        case "^":
            return f"({left})^{{2}}", a**2
    return (f"\\frac{{{left}}}{{{right}}}", a / b) if b else (left, a)


@given(expressions())
def test_exact_values_are_those_of_rational_arithmetic(pair):
    text, value = pair
    answer = read_answer(f"{text}+0")
    assert isinstance(answer, Quantity)
    assert evaluate(answer.expression) == value


@given(expressions(), st.integers(1, 10**6))
def test_a_shifted_value_is_never_equal(pair, distance):
    text, value = pair
    other = value + Fraction(1, distance)
    gold = read_answer(f"\\frac{{{other.numerator}}}{{{other.denominator}}}")
    options = MathOptions(allow_unevaluated=True)
    finding = compare_fully(gold, read_answer(text), options)
    assert finding is not None
    assert finding.same is False


@given(st.lists(nonzero, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_lists_compare_as_multisets_and_tuples_in_order(items, random):
    shuffled = items.copy()
    random.shuffle(shuffled)
    equality = FullEquality(assume_positive=False)

    def same(gold, answer):
        return compare(read_answer(gold), read_answer(answer), OPTIONS, equality).same

    written, mixed = ", ".join(map(str, items)), ", ".join(map(str, shuffled))
    assert same(written, mixed)
    assert not same(written, f"{mixed}, 99")
    assert not same(f"{written}, 99", f"{mixed}, 98")
    assert same(f"\\{{{written}\\}}", f"\\{{{mixed}, {items[0]}\\}}")
    if len(items) > 1:
        assert same(f"({written})", f"({mixed})") == (items == shuffled)


@given(nonzero, nonzero, nonzero, nonzero)
def test_polynomials_are_equal_when_their_coefficients_are(a, b, c, d):
    product = f"({a}x+{b})({c}x+{d})"
    expanded = f"{a * c}x^2+{a * d + b * c}x+{b * d}".replace("+-", "-")
    wrong = f"{a * c}x^2+{a * d + b * c}x+{b * d + 1}".replace("+-", "-")
    gold = read_answer(product.replace("+-", "-"))
    right = compare_fully(gold, read_answer(expanded), OPTIONS)
    different = compare_fully(gold, read_answer(wrong), OPTIONS)
    assert right is not None
    assert different is not None
    assert (right.same, different.same) == (True, False)


@given(nonzero, nonzero, nonzero)
def test_equations_are_equal_up_to_a_factor(a, b, factor):
    gold = read_answer(f"{a}x+{b}y=7".replace("+-", "-"))
    scaled = read_answer(f"{a * factor}x+{b * factor}y={7 * factor}".replace("+-", "-"))
    shifted = read_answer(f"{a * factor}x+{b * factor}y={7 * factor + 1}".replace("+-", "-"))
    same, different = (compare_fully(gold, other, OPTIONS) for other in (scaled, shifted))
    assert same is not None
    assert different is not None
    assert (same.same, different.same) == (True, False)


@given(st.integers(-20, 20), st.integers(1, 20), st.booleans(), st.booleans())
def test_intervals_and_inequalities_say_the_same(left, width, left_closed, right_closed):
    right = left + width
    opening, closing = "([" [left_closed], ")]" [right_closed]  # fmt: skip
    signs = ["\\le" if closed else "<" for closed in (left_closed, right_closed)]
    interval = read_answer(f"{opening}{left},{right}{closing}")
    relation = read_answer(f"{left} {signs[0]} x {signs[1]} {right}")
    wider = read_answer(f"{left} {signs[0]} x {signs[1]} {right + 1}")
    found = [compare_fully(relation, other, OPTIONS) for other in (interval, relation, wider)]
    assert [f and f.same for f in found] == [True, True, False]


@example(r"12 \text{ cm}^")
@example(r"\sqrt\text{cm}^{}")
@example(r"x\equiv 3\equiv 4\pmod 7")
@example(r"x\equiv (3\pmod")
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_latex_noise_is_read_or_refused(text):
    try:
        answer = read_answer(text)
    except Unreadable:
        return
    finding = compare_fully(answer, answer, OPTIONS)
    assert finding is None or finding.same is not None


@given(st.text(max_size=200))
def test_cleaning_any_text_ends_and_settles(text):
    once = clean(text)
    assert isinstance(once, str)
    for policy in ("boxed", "answer_tag", "hash", "answer_line", "last_number", "lenient"):
        find_answer(text, policy)


@pytest.fixture(scope="module")
def math_verifier():
    verifier = build_verifier("math", {})
    yield verifier
    verifier.close()


@given(st.lists(st.sampled_from([*PIECES, " ", "+", "-"]), max_size=15).map("".join), st.text())
def test_a_verdict_for_any_pair_of_texts(math_verifier, gold, answer):
    problem = Problem(id="1", prompt="", verifier="math", reference=gold, source="row")
    for text in (f"\\boxed{{{answer}}}", f"\\boxed{{{gold}}}"):
        verdict = math_verifier.verify(Submission(problem=problem, completion=text))
        assert verdict.status != "error", verdict
