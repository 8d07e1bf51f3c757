"""Held-out questions that are also trained on: the same text, or a long run of the same words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from verifiers.problem import Problem

# The length that the GPT-3 paper (arXiv 2005.14165, appendix C) looks for.
NGRAM_WORDS = 13
_WORD = re.compile(r"\w+")
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """A held-out problem that a training problem gives away.

    Attributes:
        held_out: Where it stands.
        trained: Where the training problem stands.
        kind: `same`: nothing but case, punctuation and white space differs. `words`: they share
            `NGRAM_WORDS` words in a row.
    """

    held_out: str
    trained: str
    kind: str


@dataclass(frozen=True, slots=True)
class _Questions:
    """A set's questions as hashes.

    Attributes:
        texts: Of the words of each question, with and without the instructions.
        runs: Of every run of words of every question.
        owners: Which question each run is of.
    """

    problems: Sequence[Problem]
    texts: Sequence[frozenset[int]]
    runs: np.ndarray
    owners: np.ndarray


def find_overlaps(
    train_sets: Mapping[str, Sequence[Problem]], eval_sets: Mapping[str, Sequence[Problem]]
) -> dict[str, list[Overlap]]:
    """The overlaps of every held-out set with all training sets, by the set's name.

    Words that all questions of a set begin or end with are its instructions, and do not count. A
    held-out problem is named once, with the first training problem that gives it away.
    """
    trained = [_hash_questions(problems) for problems in train_sets.values()]
    found = {name: _match(_hash_questions(p), trained) for name, p in eval_sets.items()}
    return {name: overlaps for name, overlaps in found.items() if overlaps}


def describe_overlaps(name: str, overlaps: Sequence[Overlap], num_problems: int) -> str:
    """One line of warning."""
    counts = Counter(overlap.kind for overlap in overlaps)
    first = overlaps[0]
    how = {"same": "is", "words": f"shares {NGRAM_WORDS} words in a row with"}[first.kind]
    return (
        f"{len(overlaps)} of {num_problems} held-out problems of {name!r} are also trained on "
        f"({counts['same']} the same, {counts['words']} in part): {first.held_out} {how} "
        f"{first.trained}. Leave such rows out of one of the two sets, or read the score as what "
        "was learned by heart."
    )


def _match(held_out: _Questions, trained: Sequence[_Questions]) -> list[Overlap]:
    same: dict[int, str] = {}
    partly: dict[int, str] = {}
    for questions in trained:
        for problem, texts in zip(questions.problems, questions.texts, strict=True):
            for text in texts:
                same.setdefault(text, problem.source)
        shared = np.flatnonzero(np.isin(questions.runs, held_out.runs))
        for run, owner in zip(questions.runs[shared], questions.owners[shared], strict=True):
            partly.setdefault(int(run), questions.problems[owner].source)
    shared_runs: dict[int, str] = {}
    for run, owner in zip(held_out.runs, held_out.owners, strict=True):
        if int(run) in partly:
            shared_runs.setdefault(int(owner), partly[int(run)])
    overlaps = []
    for index, (problem, texts) in enumerate(zip(held_out.problems, held_out.texts, strict=True)):
        if places := [same[text] for text in texts if text in same]:
            overlaps.append(Overlap(held_out=problem.source, trained=places[0], kind="same"))
        elif index in shared_runs:
            overlaps.append(
                Overlap(held_out=problem.source, trained=shared_runs[index], kind="words")
            )
    return overlaps


def _hash_questions(problems: Sequence[Problem]) -> _Questions:
    whole = [_WORD.findall(_question(p).lower()) for p in problems]
    words = _without_instructions(whole)
    texts = [
        frozenset(hash(tuple(each)) for each in pair if each)
        for pair in zip(whole, words, strict=True)
    ]
    lengths = np.array([len(each) for each in words], dtype=np.int64)
    flat = np.array([hash(word) for each in words for word in each], dtype=np.int64)
    owners = np.repeat(np.arange(len(words)), lengths)
    starts = np.arange(max(0, len(flat) - NGRAM_WORDS + 1))
    starts = starts[owners[starts] == owners[starts + NGRAM_WORDS - 1]]
    runs = np.zeros(len(starts), dtype=np.uint64)
    for offset in range(NGRAM_WORDS):  # a polynomial, modulo 2**64
        runs = runs * _FACTOR + flat[starts + offset].astype(np.uint64)
    return _Questions(problems, texts, runs, owners[starts])


def _without_instructions(words: list[list[str]]) -> list[list[str]]:
    """Every question without the words that all of them begin or end with."""
    if len({tuple(each) for each in words}) < 2:
        return words
    head = _num_common(words)
    words = [each[head:] for each in words]
    tail = _num_common([each[::-1] for each in words])
    return [each[: len(each) - tail] for each in words]


def _num_common(words: Sequence[Sequence[str]]) -> int:
    shortest = min(map(len, words))
    first = words[0]
    return next(
        (i for i in range(shortest) if any(each[i] != first[i] for each in words)), shortest
    )


def _question(problem: Problem) -> str:
    """The last thing the user says: earlier turns are examples and instructions."""
    prompt = problem.prompt
    if isinstance(prompt, str):
        return prompt
    return next((m["content"] for m in reversed(prompt) if m["role"] == "user"), "")
