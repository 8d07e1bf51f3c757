"""What is wrong with data sets, found without a model: references and repeated prompts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verifiers.gold_trials import read_answers
from verifiers.golds import SOLUTION_COLUMN, GoldCheck, check_gold
from verifiers.judge import Judge
from verifiers.maths.bare import PRELOAD, Reading, is_plain
from verifiers.problem import Problem
from verifiers.workers import WorkerPool, WorkerSettings

_MISREAD_KINDS_SKIPPED = frozenset({"unreadable", "choice", "text"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """A prompt that an earlier row has already."""

    source: str
    first: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetReport:
    """What was found in one set.

    Attributes:
        checks: One for each row.
        misread: Rows whose bare reference other readers take for another value, or not at all.
        repeats: Rows with the prompt of an earlier row of this set.
        leaks: Rows of a held-out set with the prompt of a training row.
    """

    name: str
    checks: Sequence[GoldCheck]
    misread: Sequence[tuple[Problem, Reading]] = ()
    repeats: Sequence[Repeat] = ()
    leaks: Sequence[Repeat] = ()

    @property
    def bad(self) -> list[GoldCheck]:
        """Rows that no answer could be judged by."""
        return [check for check in self.checks if check.fault is not None]

    @property
    def bad_share(self) -> float:
        """Share of bad rows."""
        return len(self.bad) / len(self.checks)

    @property
    def kinds(self) -> Mapping[str, int]:
        """Rows by the kind of their reference, most frequent first."""
        return dict(Counter(check.kind for check in self.checks).most_common())


def check_sets(
    train_sets: Mapping[str, Sequence[Problem]],
    eval_sets: Mapping[str, Sequence[Problem]],
    verifier_options: Mapping[str, Mapping[str, Any]],
    *,
    solution_column: str = SOLUTION_COLUMN,
) -> list[SetReport]:
    """Check every row of every set; see `SetReport`.

    Args:
        train_sets: Rows of each set that is trained on.
        eval_sets: Rows of each held-out set.
        verifier_options: Options of each verifier that rows name.
        solution_column: See `check_gold`.
    """
    judge = Judge(verifier_options)
    settings = WorkerSettings(
        target="verifiers.maths.bare:read_bare", preload=("verifiers.maths.bare", *PRELOAD)
    )
    reader = WorkerPool(settings)

    def check(name: str, problems: Sequence[Problem], trained: Mapping[str, str]) -> SetReport:
        checks = [
            check_gold(p, judge, verifier_options[p.verifier], solution_column=solution_column)
            for p in problems
        ]
        repeats, places = find_repeats(problems)
        return SetReport(
            name=name,
            checks=checks,
            misread=find_misread(checks, reader),
            repeats=repeats,
            leaks=[
                Repeat(source=place, first=trained[prompt])
                for prompt, place in places.items()
                if prompt in trained
            ],
        )

    trained: dict[str, str] = {}
    for problems in train_sets.values():
        trained |= find_repeats(problems)[1]
    try:
        reports = [check(name, problems, {}) for name, problems in train_sets.items()]
        reports += [check(name, problems, trained) for name, problems in eval_sets.items()]
    finally:
        judge.close()
        reader.close()
    return reports


def find_repeats(problems: Sequence[Problem]) -> tuple[list[Repeat], dict[str, str]]:
    """Rows with an earlier row's prompt, and the first place of every prompt.

    Prompts are the same when they differ in nothing but white space.
    """
    first: dict[str, str] = {}
    repeats = []
    for problem in problems:
        prompt = problem.prompt
        text = prompt if isinstance(prompt, str) else json.dumps(prompt, ensure_ascii=False)
        place = first.setdefault(" ".join(text.split()), problem.source)
        if place != problem.source:
            repeats.append(Repeat(source=problem.source, first=place))
    return repeats, first


def find_misread(checks: Sequence[GoldCheck], reader: WorkerPool) -> list[tuple[Problem, Reading]]:
    """Mathematical references that lose their meaning where they are passed without a box."""
    known: dict[str, Reading] = {}
    misread = []
    for check in checks:
        if check.problem.verifier != "math" or check.kind in _MISREAD_KINDS_SKIPPED:
            continue
        (answer,) = read_answers(check.problem)
        if answer not in known:
            known[answer] = "same" if is_plain(answer) else _read_bare(answer, reader)
        if known[answer] != "same":
            misread.append((check.problem, known[answer]))
    return misread


def _read_bare(answer: str, reader: WorkerPool) -> Reading:
    outcome = reader.run(answer)
    # What the other reader cannot do within the limits it has not read.
    return "unread" if outcome.failure is not None else outcome.value
