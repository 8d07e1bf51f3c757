"""Completions to try a verifier with: ordinary ones, and what a model may write at its worst."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from verifiers.extraction import Policy
from verifiers.problem import Problem, Submission
from verifiers.replies import write_reply

_POLICIES: tuple[Policy, ...] = ("whole", "boxed", "answer_tag", "hash", "answer_line")
_WRONG_ANSWER = "7919"
MEGABYTE = 2**20


def ordinary_completions(reference: Any) -> list[str]:
    """The reference and another answer, each stated in every usual way; prose; nothing."""
    answers = (str(reference), _WRONG_ANSWER)
    stated = [write_reply(answer, policy) for policy in _POLICIES for answer in answers]
    return [*stated, "", "I do not know.", "<think>It is simple.</think>\n" + stated[0]]


def hostile_completions(problem: Problem) -> Iterator[tuple[str, Submission]]:
    """Names and submissions; those of megabytes are made one at a time."""
    for name, text, times in _HOSTILE:
        yield name, Submission(problem=problem, completion=text * times)
    for name, inner in _BOXED:
        yield f"{name}, boxed", Submission(problem=problem, completion=f"\\boxed{{{inner}}}")
        yield name, Submission(problem=problem, completion=inner)
    yield "cut off", Submission(problem=problem, completion="so the ans", truncated=True)


_HOSTILE = (
    ("nothing", "", 1),
    ("white space", " \n\t\r", 1000),
    ("a NUL character", "\0", 1),
    ("a lone surrogate", "\ud800", 1),
    ("characters outside the basic plane", "\U0001d7d9\U0001f600", 10),
    ("right-to-left and zero-width marks", "\u202e\u200b\u2066", 10),
    ("combining marks", "e" + "\u0301" * 10_000, 1),
    ("a megabyte of one word", "answer ", MEGABYTE // 7),
    ("a megabyte of one letter", "a", MEGABYTE),
    ("a megabyte of line ends", "\n", MEGABYTE),
    ("a million digits", "9", 10**6),
    ("a number beyond floats", "1e999999999", 1),
    ("not a number", "nan", 1),
    ("infinity", "-inf", 1),
    ("100,000 open braces", "{", 10**5),
    ("100,000 open brackets", "[(", 50_000),
    ("10,000 open boxes", "\\boxed{", 10**4),
    ("100,000 boxes", "\\boxed{1} ", 10**5),
    ("an open block of reasoning", "<think> \\boxed{1}", 1),
    ("10,000 blocks of reasoning", "<think></think>", 10**4),
    ("an open code fence", "```python\nprint(1", 1),
    ("nested quantifiers' bait", "a" * 40 + "!", 1),
    ("text that reaches for eval", "__import__('os')._exit(1)", 1),
    ("a template's fields", "{0.__class__} {answer} %s %(x)s", 1),
    ("JSON nested 100,000 deep", '{"a":', 10**5),
)
_BOXED = (
    ("an exponent tower", "9^{9^{9^{9}}}"),
    ("a tower without braces", "9**9**9**9"),
    ("a factorial tower", "(10^{10})!!"),
    ("a huge binomial", "\\binom{10^9}{5\\cdot10^8}"),
    ("a deep fraction", "\\frac{1" * 2000),
    ("a long sum", "+".join(["x"] * 20_000)),
    ("hostile LaTeX", "\\def\\x{\\x\\x}\\x \\input{/etc/passwd}"),
    ("two backslashes", "\\\\"),
)
