"""The verifier of form alone: one reasoning block, one answer, nothing after it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from verifiers.errors import UserError
from verifiers.example import Example
from verifiers.extraction import (
    PLACEHOLDERS,
    TAG_CLOSE,
    TAG_OPEN,
    THINK_CLOSE,
    THINK_OPEN,
    scan_boxes,
)
from verifiers.problem import Problem, Submission
from verifiers.protocol import Verifier
from verifiers.replies import Ruling
from verifiers.verdict import Reason, Status, Verdict

AnswerForm = Literal["tag", "box", "text"]


class FormatVerifier(Verifier):
    r"""Judges whether a completion has its prescribed form, whatever it says.

    The whole completion must be one `<think>` block with something in it, then one answer, then
    nothing but white space or a full stop. The verdict's components say which of the four holds:
    `think`, `answer`, `order`, `end`. It reads no reference, and is made to be a part of
    `composite`.

    Args:
        answer: `tag`: one `<answer>` block, right after the reasoning. `box`: one `\boxed{}`, with
            text before it. `text`: any text without such blocks.
        think: Whether there must be a `<think>` block; otherwise there must be none.
        think_in_prompt: The prompt ends with `<think>`, so that the completion begins inside.
        allow_truncated: Judge a completion that was cut off at the length limit.

    Raises:
        UserError: There is no such form of answer, or the options contradict each other.
    """

    name = "format"
    version = 1

    def __init__(
        self,
        *,
        answer: AnswerForm = "tag",
        think: bool = True,
        think_in_prompt: bool = False,
        allow_truncated: bool = False,
    ) -> None:
        if answer not in get_args(AnswerForm):
            raise UserError(
                f"option 'answer' of the verifier `format` is {answer!r}; choose from "
                f"{', '.join(get_args(AnswerForm))}"
            )
        if think_in_prompt and not think:
            raise UserError(
                "the verifier `format` has think_in_prompt=true and think=false: where the prompt "
                "opens a block, the completion has one"
            )
        self._answer: AnswerForm = answer
        self._think = think
        self._think_in_prompt = think_in_prompt
        self._allow_truncated = allow_truncated

    def prepare(self, problem: Problem) -> None:
        """Nothing to check: the form does not depend on the row."""

    def verify(self, submission: Submission) -> Verdict:
        """Judge one completion."""
        started = time.perf_counter()
        if submission.truncated and not self._allow_truncated:
            return Ruling.no_answer(Reason.TRUNCATED).sign(self.label, started)
        text = THINK_OPEN * self._think_in_prompt + submission.completion
        components = self._measure(text)
        missing = [name for name, value in components.items() if not value]
        ruling = Ruling(
            status=Status.INCORRECT if missing else Status.CORRECT,
            reason=Reason.REJECTED if missing else Reason.ACCEPTED,
            detail=f"wrong: {', '.join(missing)}" if missing else None,
            components=components,
        )
        return ruling.sign(self.label, started)

    def examples(self) -> Sequence[Example]:
        """A completion of the right form, and the same with something after it."""
        answer = {"tag": f"{TAG_OPEN}4{TAG_CLOSE}", "box": r"So \boxed{4}", "text": "It is 4"}
        thought = f"{THINK_OPEN}2 + 2{THINK_CLOSE}" if self._think else ""
        right = (thought + answer[self._answer]).removeprefix(THINK_OPEN * self._think_in_prompt)
        wrong = right + TAG_CLOSE
        return [
            Example.of(self.name, None, right, Status.CORRECT),
            Example.of(self.name, None, wrong, Status.INCORRECT),
        ]

    def _measure(self, text: str) -> Mapping[str, float]:
        thought, reply = _split_thought(text)
        count = int(self._think)
        has_think = text.count(THINK_OPEN) == text.count(THINK_CLOSE) == count
        find = {"tag": _find_tag, "box": _find_box, "text": _find_text}[self._answer]
        before, answer, after = find(reply)
        in_order = text.lstrip().startswith(THINK_OPEN) if self._think else True
        if self._answer == "tag":
            in_order = in_order and not before.strip()
        return {
            "think": float(has_think and (not self._think or bool(thought.strip()))),
            "answer": float(answer is not None and answer.strip().lower() not in PLACEHOLDERS),
            "order": float(in_order),
            "end": float(answer is not None and after.strip() in ("", ".")),
        }


def _split_thought(text: str) -> tuple[str, str]:
    """What stands in the reasoning block, and all text after it; a missing block is empty."""
    before, closed, reply = text.rpartition(THINK_CLOSE)
    return (before.partition(THINK_OPEN)[2], reply) if closed else ("", text)


def _find_tag(reply: str) -> tuple[str, str | None, str]:
    """Text before the one answer, the answer or None, text after it."""
    if reply.count(TAG_OPEN) != 1 or reply.count(TAG_CLOSE) != 1:
        return reply, None, ""
    before, _, rest = reply.partition(TAG_OPEN)
    answer, closed, after = rest.partition(TAG_CLOSE)
    return before, answer if closed else None, after


def _find_box(reply: str) -> tuple[str, str | None, str]:
    boxes = scan_boxes(reply)
    if len(boxes) != 1 or TAG_CLOSE in reply or TAG_OPEN in reply:
        return reply, None, ""
    ((start, end, answer),) = boxes
    after = reply[end:].strip()
    for mark in ("$$", "$", r"\]", r"\)"):  # the end of the formula that the box stands in
        if after.startswith(mark):
            after = after.removeprefix(mark)
            break
    return reply[:start], answer, after


def _find_text(reply: str) -> tuple[str, str | None, str]:
    tags = (TAG_OPEN, TAG_CLOSE, THINK_OPEN, THINK_CLOSE)
    return "", None if any(tag in reply for tag in tags) else reply, ""
