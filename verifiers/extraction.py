"""Where the answer stands in a completion: one declared policy for each task."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from verifiers.errors import UserError
from verifiers.verdict import Reason

Policy = Literal["boxed", "answer_tag", "hash", "answer_line", "whole", "last_number", "lenient"]

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"
TAG_OPEN, TAG_CLOSE = "<answer>", "</answer>"
PLACEHOLDERS = frozenset(
    {"", "?", "...", "\\ldots", "\\dots", "answer", "your answer", "\\text{answer}"}
)
# What may stand between two boxes that together give one answer, as in `\boxed{2}, \boxed{6}`.
BETWEEN_BOXES = re.compile(r"(?:[\s$,;.&]|\\[()\[\],;!: ]|\\quad|\\text\{[^{}]*\}|and|or)*")

_BRACE = re.compile(r"\\(?:boxed|fbox)\s*\{|\\.|[{}]", re.DOTALL)
# A number that the braces were forgotten round.
_BARE_BOX = re.compile(r"\\(?:boxed|fbox)\s*([-+]?(?:\d[\d,]*)?\.?\d+)(?![\w{])")
_SAYS_SOMETHING = re.compile(r"[^\W_]")
_HASH = re.compile(r"^\s*####[ \t]*(.*)$", re.MULTILINE)
_ANSWER_PHRASE = re.compile(
    r"\banswers?\b[*_]*\s*(?:is|are|:|=)+[*_]*[:\s]*(?P<rest>[^\n]*)", re.IGNORECASE
)
_SENTENCE_END = re.compile(r"[.!]\s+[A-Z]")
_STATEMENT = re.compile(r"(?:\b(?:is|are|be|equals?|gives?)\b|:|=)\s*([^\n]*)$", re.IGNORECASE)
_MATH_SPAN = re.compile(r"\$\$?([^$]+)\$\$?|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_NUMBER = re.compile(r"-?\$?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")
LENIENT_WHOLE_LIMIT = 200
LENIENT_LINE_LIMIT = 2000


@dataclass(frozen=True, slots=True)
class Found:
    """An answer as it was written.

    Attributes:
        text: The answer; several boxes that belong together are joined by commas.
        parts: The boxes that belong together; one element otherwise.
        distinct: Different answers in the whole final reply.
        at_end: Whether neither letter nor digit follows in the final reply.
    """

    text: str
    parts: tuple[str, ...]
    distinct: int = 1
    at_end: bool = True

    @classmethod
    def single(cls, text: str) -> Found:
        """An answer that stands alone."""
        return cls(text.strip(), (text.strip(),))


def check_policy(policy: str) -> Policy:
    """The policy, if there is one of that name.

    Raises:
        UserError: There is none.
    """
    for known in get_args(Policy):
        if policy == known:
            return known
    raise UserError(
        f"there is no extraction policy {policy!r}; choose from {', '.join(get_args(Policy))}"
    )


def find_final_reply(completion: str) -> str | Reason:
    """The text after the last reasoning block, or that one is still open."""
    _, closed, reply = completion.rpartition(THINK_CLOSE)
    reply = reply if closed else completion
    return Reason.UNFINISHED_REASONING if THINK_OPEN in reply else reply


def find_answer(reply: str, policy: Policy) -> Found | Reason:
    r"""The answer in a final reply, or why there is none. Linear in the reply's length.

    Args:
        reply: What `find_final_reply` gave.
        policy: `boxed`: the last `\boxed{}`. `answer_tag`: the last `<answer>`. `hash`: the last
            line after `####`. `answer_line`: the last "answer is ..." or "Answer: ...". `whole`:
            the whole reply. `last_number`: the last number. `lenient`: the first of these that is
            there. The last two guess, so they are for evaluation, never for training.
    """
    found = _POLICIES[policy](reply)
    if isinstance(found, Found) and found.text.strip(" .$").lower() in PLACEHOLDERS:
        return Reason.EMPTY_ANSWER
    return found


def _find_boxed(reply: str) -> Found | Reason:
    boxes = scan_boxes(reply)
    if not boxes:
        bare = _BARE_BOX.findall(reply)
        return Found.single(bare[-1]) if bare else Reason.NO_BOX
    filled = [(a, b, t) for a, b, t in boxes if t.lower() not in PLACEHOLDERS]
    if not filled:
        return Reason.EMPTY_ANSWER
    last = [filled[-1]]
    for box in reversed(filled[:-1]):
        if not BETWEEN_BOXES.fullmatch(reply, box[1], last[-1][0]):
            break
        last.append(box)
    parts = tuple(dict.fromkeys(text for _, _, text in reversed(last)))
    at_end = not _SAYS_SOMETHING.search(reply, last[0][1])
    return Found(", ".join(parts), parts, len({text for _, _, text in filled}), at_end)


def scan_boxes(text: str) -> list[tuple[int, int, str]]:
    """Outermost closed boxes: start, end, content.

    One pass with a stack, so nothing a model writes is slow.
    """
    boxes: list[tuple[int, int, str]] = []
    open_braces: list[tuple[int, int] | None] = []  # of a box: where it and its content begin
    for match in _BRACE.finditer(text):
        piece = match.group()
        if piece == "{":
            open_braces.append(None)
        elif piece == "}":
            opened = open_braces.pop() if open_braces else None
            if opened:
                start, inside = opened
                while boxes and boxes[-1][0] > start:  # boxes within this one
                    boxes.pop()
                boxes.append((start, match.end(), text[inside : match.start()].strip()))
        elif len(piece) > 2:
            open_braces.append((match.start(), match.end()))
    return boxes


def _find_tag(reply: str) -> Found | Reason:
    before, closed, _ = reply.rpartition(TAG_CLOSE)
    _, opened, content = before.rpartition(TAG_OPEN)
    if not (closed and opened):
        return Reason.NOT_FOUND
    inner = _find_boxed(content)
    return inner if isinstance(inner, Found) else Found.single(content)


def _find_hash(reply: str) -> Found | Reason:
    matches = _HASH.findall(reply)
    return Found.single(matches[-1]) if matches else Reason.NOT_FOUND


def _find_answer_line(reply: str) -> Found | Reason:
    matches = list(_ANSWER_PHRASE.finditer(reply))
    if not matches:
        return Reason.NOT_FOUND
    rest = matches[-1].group("rest")
    end = _SENTENCE_END.search(rest)
    return Found.single(rest[: end.start()] if end else rest)


def _find_whole(reply: str) -> Found | Reason:
    return Found.single(reply)


def _find_last_number(reply: str) -> Found | Reason:
    numbers = _NUMBER.findall(reply)
    return Found.single(numbers[-1]) if numbers else Reason.NOT_FOUND


def _find_lenient(reply: str) -> Found | Reason:
    for find in (_find_boxed, _find_tag, _find_hash, _find_answer_line):
        found = find(reply)
        if isinstance(found, Found) or found is Reason.EMPTY_ANSWER:
            return found
    last_line = reply.strip().rpartition("\n")[2][-LENIENT_LINE_LIMIT:]
    spans = _MATH_SPAN.findall(last_line)
    if spans:
        return Found.single(next(text for text in spans[-1] if text))
    statement = (
        _STATEMENT.search(last_line) if re.search(r"[a-z]{2,} [a-z]{2,} ", last_line) else None
    )
    if statement:
        return Found.single(statement.group(1))
    return Found.single(reply) if len(reply) <= LENIENT_WHOLE_LIMIT else Reason.NOT_FOUND


_POLICIES: Mapping[Policy, Callable[[str], Found | Reason]] = {
    "boxed": _find_boxed,
    "answer_tag": _find_tag,
    "hash": _find_hash,
    "answer_line": _find_answer_line,
    "whole": _find_whole,
    "last_number": _find_last_number,
    "lenient": _find_lenient,
}
