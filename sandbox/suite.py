"""The tests of one problem: the kinds there are, and what each needs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sandbox.asserts import AssertTest
from sandbox.checkers import CheckerTest
from sandbox.compare import Comparer, same_value
from sandbox.limits import Limits
from sandbox.programs import ProgramTest
from sandbox.result import Call


@dataclass(frozen=True, slots=True, kw_only=True)
class StdioTest:
    """A run of the whole program.

    Attributes:
        stdin: What it reads.
        expected: What it must print; any one of these.
        comparer: When a text counts as one of them.
    """

    stdin: str
    expected: tuple[str, ...]
    comparer: Comparer = field(default_factory=Comparer)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTest:
    """A call of one function that the program defines.

    Attributes:
        call: The call.
        expected: What it must return, by `same_value`; any one of these.
        abs_tol: Absolute tolerance where a `float` is expected.
        rel_tol: Relative tolerance there.
    """

    call: Call
    expected: tuple[Any, ...]
    abs_tol: float = 1e-6
    rel_tol: float = 1e-6

    @property
    def calls(self) -> tuple[Call, ...]:
        """The one call."""
        return (self.call,)

    def holds(self, values: Sequence[Any]) -> bool:
        """Whether the call returned what was expected."""
        return any(
            same_value(values[0], one, abs_tol=self.abs_tol, rel_tol=self.rel_tol)
            for one in self.expected
        )


_FUTURE = re.compile(r"^from __future__ import .*\n", re.MULTILINE)

CallTest = FunctionTest | AssertTest
"""Judged here, by what calls returned."""
OutputTest = StdioTest | CheckerTest
"""Judged by what a run of the whole program printed."""
Test = StdioTest | CheckerTest | FunctionTest | AssertTest | ProgramTest


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """All tests of a problem.

    Attributes:
        tests: In the order in which they are reported.
        limits: Of each test.
        preamble: Source that goes before every program, such as imports that the prompt promised.
    """

    tests: tuple[Test, ...]
    limits: Limits
    preamble: str = ""

    @property
    def needs_judges(self) -> bool:
        """Whether some of its tests hold code that has to be run."""
        return any(isinstance(one, (CheckerTest, ProgramTest)) for one in self.tests)

    def source(self, program: str) -> str:
        """What is run for a program: the preamble, then the program.

        What the program imports from `__future__` has to come first of all.
        """
        if not self.preamble:
            return program
        future = "".join(_FUTURE.findall(program))
        return f"{future}{self.preamble}\n{_FUTURE.sub('', program) if future else program}"
