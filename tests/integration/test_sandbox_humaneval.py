"""HumanEval and MBPP+ through the `code` verifier: every solution passes, no trick does."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from verifiers.code import CodeVerifier
from verifiers.code_formats.read import read_code_row
from verifiers.problem import Problem, Submission
from verifiers.verdict import Status, Verdict

ALWAYS_EQUAL = """
class AlwaysEqual:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __eq__
    def __hash__(self): return 0
    def __sub__(self, other): return self
    __rsub__ = __add__ = __radd__ = __sub__
    def __abs__(self): return self
    def __bool__(self): return True
    def __len__(self): return 1
    def __iter__(self): return iter([self])
def {name}(*args, **kwargs): return AlwaysEqual()
"""

TRICKS = {
    "always equal": ALWAYS_EQUAL,
    "exit": "import sys\nsys.exit(0)\ndef {name}(*args): pass",
    "_exit": "import os\nos._exit(0)\ndef {name}(*args): pass",
    "exit in call": "import sys\ndef {name}(*args): sys.exit(0)",
    "patched": "import builtins\nbuiltins.AssertionError = int\ndef {name}(*args): return object",
    "skip": "import unittest\ndef {name}(*args): raise unittest.SkipTest",
    "redefined check": "def check(candidate): return True\ndef {name}(*args): return check",
}
# Every sixteenth problem of MBPP+; all of them take minutes.
SAMPLE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A problem with its published solution."""

    problem: Problem
    solution: str
    entry_point: str


@pytest.fixture(scope="module")
def human_eval(data_dir: Path) -> list[Task]:
    rows = read_rows(data_dir / "humaneval" / "HumanEval.jsonl.gz")
    return [task(row, row["entry_point"]) for row in rows]


@pytest.fixture(scope="module")
def mbpp_rows(data_dir: Path) -> list[dict[str, Any]]:
    return read_rows(data_dir / "mbppplus" / "MbppPlus-OriginFmt.jsonl.gz")


def read_rows(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def mbpp_task(row: dict[str, Any]) -> Task:
    called = re.findall(r"\w+(?=\s*\()", row["test_list"][0])
    return task(row, next(name for name in called if re.search(rf"def {name}\b", row["code"])))


def task(row: dict[str, Any], entry_point: str) -> Task:
    read = read_code_row(row, str(row["task_id"]))
    problem = Problem(
        id=str(row["task_id"]),
        prompt=read["prompt"],
        verifier="code",
        reference=read["answer"],
        source="public data",
    )
    return Task(problem=problem, solution=read["solution"], entry_point=entry_point)


@pytest.fixture(scope="module")
def verifier() -> Iterator[CodeVerifier]:
    with closing(CodeVerifier()) as one:
        one.start()
        yield one


def judge_all(
    verifier: CodeVerifier, tasks: Sequence[Task], write: Callable[[Task], str]
) -> dict[str, Verdict]:
    def judge(one: Task) -> Verdict:
        completion = f"Here it is:\n```python\n{write(one)}\n```"
        return verifier.verify(Submission(problem=one.problem, completion=completion))

    with ThreadPoolExecutor(2) as threads:
        verdicts = list(threads.map(judge, tasks))
    return {one.problem.id: verdict for one, verdict in zip(tasks, verdicts, strict=True)}


def other_than(status: Status, verdicts: dict[str, Verdict]) -> dict[str, str]:
    return {
        name: f"{one.status} {one.reason} {one.detail}"
        for name, one in verdicts.items()
        if one.status is not status
    }


def write_mutant(one: Task) -> str:
    name = one.entry_point
    source = re.sub(rf"\b{name}\b", f"{name}_right", one.solution)
    return f"{source}\n\ndef {name}(*args):\n    return [{name}_right(*args), 'changed']\n"


def write_trick(trick: str, one: Task) -> str:
    return TRICKS[trick].format(name=one.entry_point)


def check_all(verifier: CodeVerifier, tasks: Sequence[Task], tricks: Iterable[str]) -> None:
    for one in tasks:
        verifier.prepare(one.problem)
    solved = judge_all(verifier, tasks, lambda one: one.solution)
    assert other_than(Status.CORRECT, solved) == {}
    assert other_than(Status.INCORRECT, judge_all(verifier, tasks, write_mutant)) == {}
    for trick in tricks:
        verdicts = judge_all(verifier, tasks, partial(write_trick, trick))
        assert other_than(Status.INCORRECT, verdicts) == {}, trick


def test_human_eval(human_eval, verifier) -> None:
    assert len(human_eval) == 164
    check_all(verifier, human_eval, TRICKS)


def test_sample_of_mbpp_plus(mbpp_rows, verifier) -> None:
    check_all(verifier, [mbpp_task(row) for row in mbpp_rows[::SAMPLE]], ["always equal", "exit"])


@pytest.mark.long
def test_mbpp_plus(mbpp_rows, verifier) -> None:
    assert len(mbpp_rows) == 378
    check_all(verifier, [mbpp_task(row) for row in mbpp_rows], TRICKS)
