"""Where answers are found."""

from __future__ import annotations

import pytest

from verifiers.errors import UserError
from verifiers.extraction import Found, check_policy, find_answer, find_final_reply
from verifiers.verdict import Reason


@pytest.mark.parametrize(
    ("policy", "reply", "expected"),
    [
        ("boxed", r"so \boxed{42}", "42"),
        ("boxed", r"so \boxed {42}", "42"),
        ("boxed", r"\fbox{42}", "42"),
        ("boxed", r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        ("boxed", r"\boxed{\{1,2\}}", r"\{1,2\}"),
        ("boxed", r"\boxed{\boxed{42}}", r"\boxed{42}"),
        ("boxed", r"a } stray { brace \boxed{42}", "42"),
        ("boxed", r"\boxed{1} then text \boxed{2}", "2"),
        ("boxed", r"\boxed{2}, \boxed{6}", "2, 6"),
        ("boxed", r"\boxed{ \boxed{7}", "7"),
        ("boxed", r"\boxed{4} Put it in \boxed{}.", "4"),
        ("boxed", r"so \boxed 42.", "42"),
        ("boxed", r"$\boxed -3.5$", "-3.5"),
        ("boxed", r"\boxed x", Reason.NO_BOX),
        ("boxed", r"\boxed 4x", Reason.NO_BOX),
        ("boxed", "no box", Reason.NO_BOX),
        ("boxed", r"\boxed{42", Reason.NO_BOX),
        ("boxed", r"\boxed{}", Reason.EMPTY_ANSWER),
        ("boxed", r"\boxed{?}", Reason.EMPTY_ANSWER),
        ("answer_tag", "<answer> 42 </answer>", "42"),
        ("answer_tag", "<answer>1</answer> <answer>2</answer>", "2"),
        ("answer_tag", r"<answer>it is \boxed{42}</answer>", "42"),
        ("answer_tag", "<answer>42", Reason.NOT_FOUND),
        ("hash", "work\n#### 42\n\nNote", "42"),
        ("hash", "work", Reason.NOT_FOUND),
        ("answer_line", "The answer is 42. Then more.", "42"),
        ("answer_line", "**Answer:** 9.", "9."),
        ("answer_line", "forty-two", Reason.NOT_FOUND),
        ("whole", " 42 ", "42"),
        ("last_number", "3 apples cost $1,200.50", "$1,200.50"),
        ("lenient", r"Answer: 3. \boxed{4}", "4"),
        ("lenient", "#### 5", "5"),
        ("lenient", "The length is \\sqrt{19}", "\\sqrt{19}"),
    ],
)
def test_policy(policy, reply, expected):
    found = find_answer(reply, policy)
    assert (found.text if isinstance(found, Found) else found) == expected


def test_boxes_are_counted():
    found = find_answer(r"\boxed{1} text here \boxed{2} text there \boxed{2}", "boxed")
    assert isinstance(found, Found)
    assert found.distinct == 2


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ("plain", "plain"),
        ("<think>a</think>b", "b"),
        ("a</think>b", "b"),
        ("<think>a</think>b<think>c</think>d", "d"),
        ("<think>a", Reason.UNFINISHED_REASONING),
        ("<think>a</think>b<think>c", Reason.UNFINISHED_REASONING),
    ],
)
def test_final_reply(completion, expected):
    assert find_final_reply(completion) == expected


def test_an_unknown_policy_is_the_users_error():
    with pytest.raises(UserError, match="choose from"):
        check_policy("best")
