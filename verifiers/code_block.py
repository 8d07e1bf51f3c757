"""Finding the program in a completion."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from verifiers.extraction import find_final_reply
from verifiers.verdict import Reason

Extraction = Literal["block", "first_block", "text"]

PYTHON_TAGS = frozenset({"", "python", "python3", "py", "py3"})
# A fence opens a line, indented by a few spaces at most, with three or more of the same mark.
# Possessive, so that a line of any length is read once.
_FENCE = re.compile(r"^ {0,3}(`{3,}+|~{3,}+)[ \t]*+([^\s`]*+)(?:[^\S\n][^\n`]*+)?$", re.MULTILINE)


def find_program(completion: str, extract: Extraction, *, truncated: bool = False) -> str | Reason:
    """The program of a completion.

    Args:
        completion: All that the model has written.
        extract: `block`: the last fenced code block after any reasoning. `first_block`: the first
            one there. `text`: everything.
        truncated: Whether the completion was cut off.

    Returns:
        Its source, or why there is none.
    """
    program: str | None = completion
    if extract != "text":
        reply = find_final_reply(completion)
        if isinstance(reply, Reason):
            return reply
        first = extract == "first_block"
        program = next(code_blocks(reply), None) if first else last_code_block(reply)
    if program is not None and program.strip():
        return program
    return Reason.TRUNCATED if truncated else Reason.NO_CODE


def last_code_block(text: str) -> str | None:
    r"""The program of the last fenced block that may hold Python; None when there is none.

    Example:
        >>> last_code_block("First ```x``` inline.\n```python\nprint(1)\n```\nDone.")
        'print(1)\n'
    """
    found: str | None = None
    for found in code_blocks(text):  # noqa: B007 - the last one is wanted
        pass
    return found


def code_blocks(text: str) -> Iterator[str]:
    """The programs of all fenced blocks that may hold Python, without their fences.

    A block's tag must be `python`, `py`, `python3`, `py3` or missing; blocks of other languages (a
    sample output, a shell command) and empty ones are passed over. A block ends with a fence of the
    same mark, at least as long as the one that opened it and without a tag. A block that the text
    leaves open counts up to the end of the text: a completion that stops right after its program
    often lacks the last fence.
    """
    opened: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opened is None:
            opened = fence
        elif _closes(opened, fence):
            yield from _program(text, opened, fence.start())
            opened = None
    if opened is not None:
        yield from _program(text, opened, len(text))


def _closes(opened: re.Match[str], fence: re.Match[str]) -> bool:
    mark = opened.group(1)
    return not fence.group(2) and fence.group(1).startswith(mark)


def _program(text: str, opened: re.Match[str], end: int) -> Iterator[str]:
    source = text[opened.end() + 1 : end]
    if opened.group(2).lower() in PYTHON_TAGS and source.strip():
        yield source
