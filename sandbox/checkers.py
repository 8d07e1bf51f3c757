"""Checker programs: whether an output is right is decided by code that belongs to the problem."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Literal

from sandbox.errors import BadTest
from sandbox.source import parse

CHECKER_FUNCTION = "check"
CheckerForm = Literal["function", "script"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checker:
    """A problem's own checker.

    Attributes:
        source: Python. Either it defines `check(stdin, expected, output)`, whose value says whether
            the output is right; or it is a script with three paths in `sys.argv[1:]` (input,
            expected output, output), which prints 1 or 0, or prints nothing and exits with 0 or 1.
        form: Which of them.
    """

    source: str
    form: CheckerForm


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckerTest:
    """A run of the whole program, whose output a checker program judges.

    Attributes:
        stdin: What the program reads.
        expected: A right output, for the checker; may be empty.
        checker: Judges.
    """

    stdin: str
    expected: str
    checker: Checker


def read_checker(source: str) -> Checker:
    """See which form a checker has.

    Raises:
        BadTest: It does not compile.
    """
    try:
        tree = parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadTest(f"checker does not compile: {error}") from error
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == CHECKER_FUNCTION:
            if len(node.args.args) != 3:
                raise BadTest("checker must define check(stdin, expected, output)")
            return Checker(source=source, form="function")
    return Checker(source=source, form="script")
