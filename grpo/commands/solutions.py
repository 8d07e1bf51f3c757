"""Solutions of code problems: from a file, or those that the problems' own rows bring."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from grpo.commands.rows import get_column, read_rows
from verifiers.code_block import Extraction, find_program
from verifiers.errors import UserError
from verifiers.problem import Problem
from verifiers.verdict import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """A program to be judged.

    Attributes:
        id: The problem's own identity.
        problem: What it solves.
        program: Its source; empty where a reply holds none.
    """

    id: str
    problem: Problem
    program: str


def reference_solutions(problems: Mapping[str, Problem]) -> Iterator[Solution]:
    """The solution of each problem that has one.

    Args:
        problems: By their own identity.

    Raises:
        UserError: None has one.
    """
    known = {key: one.columns["solution"] for key, one in problems.items() if _has_solution(one)}
    if not known:
        raise UserError(
            "No row has a reference solution in Python; give a file of solutions "
            "(--solutions FILE)."
        )
    if len(known) < len(problems):
        missing = len(problems) - len(known)
        print(f"{missing} problems have no reference solution in Python.", file=sys.stderr)
    for key, program in known.items():
        yield Solution(id=key, problem=problems[key], program=program)


def _has_solution(problem: Problem) -> bool:
    return isinstance(problem.columns.get("solution"), str)


def read_solutions(
    file: str, problems: Mapping[str, Problem], extract: Extraction
) -> Iterator[Solution]:
    """The solutions of a JSONL file, one a row; a problem may have any number.

    Args:
        file: Its name.
        problems: By their own identity.
        extract: How a program stands in a `completion`.

    Raises:
        UserError: A row is malformed, or names no problem.
    """
    for source, row in read_rows(file):
        key = _identity(row, source)
        if key not in problems:
            near = ", ".join(list(problems)[:3])
            raise UserError(f"{source}: there is no problem {key!r}; the data has {near}, ...")
        yield Solution(id=key, problem=problems[key], program=_program(row, source, extract))


def _identity(row: Mapping[str, Any], source: str) -> str:
    name = "task_id" if "task_id" in row and "id" not in row else "id"
    return str(get_column(row, name, source))


def _program(row: Mapping[str, Any], source: str, extract: Extraction) -> str:
    name = "solution" if "solution" in row else "completion"
    text = get_column(row, name, source)
    if not isinstance(text, str):
        raise UserError(f"{source}: column {name!r} is not text")
    if name == "solution":
        return text
    found = find_program(text, extract)
    return "" if isinstance(found, Reason) else found
