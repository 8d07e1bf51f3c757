"""A test program on trial: its code runs in one container, the program under test in another.

Between them go values only: what the test calls the program with, and what that gave. What the test
expects never leaves its container.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sandbox.container import tester
from sandbox.container.candidate import DONE, NO_MEMORY
from sandbox.errors import WorkerLost
from sandbox.limits import Limits
from sandbox.programs import ProgramTest
from sandbox.result import Dialogue, ExecResult, ExecStatus, InfraCause, Job, Runs

# Test code is trusted, may be large, and is given time of its own.
MIN_TEST_CPU_S = 10.0
TEST_CPU_FACTOR = 5
TEST_MEMORY_MB = 2048
TEST_ANSWER_KB = 16 * 1024


class Ending(StrEnum):
    """How a trial ended."""

    PASSED = "passed"
    """The test came to its end."""
    FAILED = "failed"
    """The test did not like a value."""
    PROGRAM = "program"
    """The program raised, ran into a limit, or ended; see its status."""
    BAD_TEST = "bad_test"
    """The test itself is at fault, and nothing is known of the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a test program.

    Attributes:
        ending: How it ended.
        detail: For a person.
        result: The run of the program under test.
    """

    ending: Ending
    detail: str
    result: ExecResult


def run_trial(
    programs: Runs, judges: Runs, source: str, test: ProgramTest, limits: Limits
) -> Outcome:
    """Run a test program against a program.

    Args:
        programs: Runs the program under test.
        judges: Runs the test; its containers never run a program under test.
        source: The program.
        test: The test.
        limits: Of the program, for each of its answers.
    """
    trial = _Trial(judges, test, limits)
    job = Job(program=source, converse=trial.converse, limits=limits)
    (result,) = programs.run(job)
    return trial.outcome(result)


class _Trial:
    """The conversations of one test; begun anew when it is made again on other containers."""

    def __init__(self, judges: Runs, test: ProgramTest, limits: Limits) -> None:
        self._judges = judges
        self._test = test
        self._limits = limits

    def converse(self, program: Dialogue) -> InfraCause | None:
        """Have the test run, and the program answer it."""
        self._lost: WorkerLost | None = None
        self._said: dict[str, Any] | None = None
        self._no_memory = self._over = False
        self._tested: ExecResult | None = None
        if program.hear() is None:
            return None  # it does not compile, or ended before it could be asked anything
        job = Job(
            program="",
            test=_spec(self._test),
            converse=lambda test: self._relay(program, test),
            limits=_test_limits(self._limits),
            repeatable=False,
        )
        (self._tested,) = self._judges.run(job)
        if self._lost is not None:
            raise self._lost
        return self._tested.infra

    def _relay(self, program: Dialogue, test: Dialogue) -> None:
        while (said := test.hear()) is not None:
            tag, text = said
            if tag == DONE.decode():
                self._said = json.loads(text)
                return
            try:
                program.say(text)
                answer = program.hear()
            except WorkerLost as error:  # not to be taken for trouble with the test's container
                self._lost = error
                return
            if answer is None or answer[0] == NO_MEMORY.decode():
                self._over, self._no_memory = True, answer is not None
                return
            test.say(json.dumps(answer))

    def outcome(self, result: ExecResult) -> Outcome:
        """What came of it, with the program's run as it was seen."""
        if result.status is ExecStatus.IE or self._tested is None or self._over:
            return _ended(_blame(result, no_memory=self._no_memory))
        said = self._said
        if said is None:
            why = f"the test code ended with {self._tested.status}: {self._tested.detail}"
            return Outcome(ending=Ending.BAD_TEST, detail=why, result=result)
        detail = str(said["detail"])
        match said["outcome"]:
            case tester.PASSED:
                return Outcome(ending=Ending.PASSED, detail=detail, result=result)
            case tester.FAILED:
                return Outcome(ending=Ending.FAILED, detail=detail, result=result)
            case tester.BAD_TEST:
                return Outcome(ending=Ending.BAD_TEST, detail=detail, result=result)
            case _:
                return _ended(dataclasses.replace(result, status=ExecStatus.RE, detail=detail))


def _blame(result: ExecResult, *, no_memory: bool) -> ExecResult:
    """The run of a program that did not answer."""
    if no_memory:
        return dataclasses.replace(result, status=ExecStatus.MLE, detail="MemoryError in a call")
    if result.status is ExecStatus.OK:
        why = "the program ended before it had answered"
        return dataclasses.replace(result, status=ExecStatus.RE, detail=why)
    return result


def _ended(result: ExecResult) -> Outcome:
    return Outcome(ending=Ending.PROGRAM, detail=result.detail, result=result)


def _spec(test: ProgramTest) -> dict[str, Any]:
    return dataclasses.asdict(test)


def _test_limits(limits: Limits) -> Limits:
    cpu_s = max(MIN_TEST_CPU_S, TEST_CPU_FACTOR * limits.cpu_s)
    return Limits(cpu_s=cpu_s, wall_s=2 * cpu_s, memory_mb=TEST_MEMORY_MB, stdout_kb=TEST_ANSWER_KB)
