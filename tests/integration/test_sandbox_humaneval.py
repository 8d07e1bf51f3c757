"""HumanEval through the `code` verifier: every solution passes, no trick does."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from verifiers.code import CodeVerifier
from verifiers.problem import Problem, Submission
from verifiers.verdict import Reason, Status, Verdict

# Their tests compute what they expect by code of their own, which is refused and not run.
NOT_READABLE = {32, 38, 50, 53, 129, 151}
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

Row = dict[str, str]


@pytest.fixture(scope="module")
def rows(data_dir: Path) -> list[Row]:
    with gzip.open(data_dir / "humaneval" / "HumanEval.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.fixture(scope="module")
def verifier() -> Iterator[CodeVerifier]:
    with closing(CodeVerifier(cpu_s=4.0)) as one:
        one.start()
        yield one


def problem(row: Row) -> Problem:
    reference = {
        "entry_point": row["entry_point"],
        "tests": [{"kind": "assert", "code": row["test"]}],
    }
    return Problem(
        id=row["task_id"],
        prompt=row["prompt"],
        verifier="code",
        reference=reference,
        source="HumanEval",
    )


def readable(rows: list[Row]) -> list[Row]:
    return [row for row in rows if int(row["task_id"].rpartition("/")[2]) not in NOT_READABLE]


def judge_all(verifier: CodeVerifier, rows: list[Row], write) -> dict[str, Verdict]:
    def judge(row: Row) -> Verdict:
        completion = f"Here it is:\n```python\n{write(row)}\n```"
        return verifier.verify(Submission(problem=problem(row), completion=completion))

    with ThreadPoolExecutor(4) as threads:
        verdicts = list(threads.map(judge, rows))
    return {row["task_id"]: verdict for row, verdict in zip(rows, verdicts, strict=True)}


def outcomes(verdicts: dict[str, Verdict]) -> Counter[tuple[Status, Reason]]:
    return Counter((one.status, one.reason) for one in verdicts.values())


def test_every_solution_passes(rows, verifier) -> None:
    verdicts = judge_all(
        verifier, readable(rows), lambda row: row["prompt"] + row["canonical_solution"]
    )
    assert outcomes(verdicts) == {(Status.CORRECT, Reason.TESTS_PASSED): len(verdicts)}


@pytest.mark.parametrize(
    "program",
    [
        ALWAYS_EQUAL,
        "import sys\nsys.exit(0)\ndef {name}(*args): pass",
        "import os\nos._exit(0)\ndef {name}(*args): pass",
        "import sys\ndef {name}(*args): sys.exit(0)",
        "import builtins\nbuiltins.AssertionError = None\ndef {name}(*args): return object()",
        "import unittest\ndef {name}(*args): raise unittest.SkipTest",
        "def check(candidate): return True\ndef {name}(*args): return check",
    ],
    ids=["always equal", "exit", "_exit", "exit in call", "patched", "skip", "redefined check"],
)
def test_no_trick_passes(rows, verifier, program) -> None:
    verdicts = judge_all(
        verifier, readable(rows), lambda row: program.format(name=row["entry_point"])
    )
    assert outcomes(verdicts) == {(Status.INCORRECT, Reason.TESTS_FAILED): len(verdicts)}


def test_a_changed_value_is_wrong(rows, verifier) -> None:
    def mutant(row: Row) -> str:
        name = row["entry_point"]
        source = re.sub(rf"\b{name}\b", f"{name}_right", row["prompt"] + row["canonical_solution"])
        return f"{source}\n\ndef {name}(*args):\n    return [{name}_right(*args), 'changed']\n"

    verdicts = judge_all(verifier, readable(rows), mutant)
    wrong = [name for name, one in verdicts.items() if one.status is not Status.INCORRECT]
    assert wrong == []
