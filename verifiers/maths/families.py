"""The many ways to say that a letter in an answer stands for every whole number."""

from __future__ import annotations

import re

# `k\pi\ (k \in \mathbb{Z})`, `k\pi \text{ where } k \text{ is an integer}`: over whole numbers.
_IN_INTEGERS = r"\\in\s*(?:\\mathbb\s*\{?\s*Z\s*\}?|\{?Z\}?)"
_AN_INTEGER = r"(?:(?:is|are)\s+)?(?:(?:an|any|all|every|some)\s+)?integers?"
_OVER_INTEGERS = re.compile(
    r"(?<=[^\s,;])[\s,;]{0,4}(?:\\text\{\s*(?:for|where|with)\s*\}\s*)?(?:"
    rf"\(\s*(?P<a>[a-z])\s*{_IN_INTEGERS}\s*\)|(?<=[\s,;}}])(?P<b>[a-z])\s*{_IN_INTEGERS}"
    rf"|(?P<c>[a-z])\s*\\text\{{\s*{_AN_INTEGER}\s*\}}"
    rf"|\\text\{{\s*(?:(?:for|where|with)\s+)?{_AN_INTEGER}\s*\}}\s*(?P<d>[a-z]))"
)


def write_membership(text: str) -> str:
    r"""The end of a family over the integers as `, k\in\mathbb{Z}`, however it is put."""
    for match in _OVER_INTEGERS.finditer(text):
        if match.end() == len(text):
            name = next(name for name in match.groups() if name)
            return f"{text[: match.start()]}, {name}\\in\\mathbb{{Z}}"
    return text
