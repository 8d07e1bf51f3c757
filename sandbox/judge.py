"""Judging a program: its runs are made in the sandbox, what they gave is compared here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from sandbox.asserts import AssertTest
from sandbox.checkers import CheckerTest
from sandbox.container.values import Opaque
from sandbox.programs import ProgramTest
from sandbox.result import ExecResult, ExecStatus, Flag, InfraCause, Job
from sandbox.suite import CallTest, FunctionTest, StdioTest, Suite

# So many inputs go into one job: the way there is paid once, and a wrong answer ends the program
# soon after.
INPUTS_PER_JOB = 16
_BRIEF_CHARS = 120


class TestVerdict(StrEnum):
    """Verdict on one test, in the words of programming contests; `IE`: it was not judged."""

    __test__ = False

    AC = "AC"
    WA = "WA"
    TLE = "TLE"
    MLE = "MLE"
    RE = "RE"
    CE = "CE"
    OLE = "OLE"
    IE = "IE"


@dataclass(frozen=True, slots=True, kw_only=True)
class TestReport:
    """What became of one test.

    Attributes:
        index: Its place in the suite.
        verdict: The verdict.
        detail: For a person: what differed, what was raised.
        cpu_s: CPU seconds.
        wall_s: Wall seconds.
        memory_mb: Peak memory.
        flags: What else was noticed.
        infra: Why it was not judged; exactly when the verdict is `IE`.
    """

    __test__ = False

    index: int
    verdict: TestVerdict
    detail: str = ""
    cpu_s: float = 0.0
    wall_s: float = 0.0
    memory_mb: float = 0.0
    flags: frozenset[Flag] = frozenset()
    infra: InfraCause | None = None


class Runs(Protocol):
    """What runs jobs; `sandbox.pool.SandboxPool` is one."""

    def run(self, job: Job) -> tuple[ExecResult, ...]:
        """One result for each run, fewer when the job stopped early."""
        ...


def judge(pool: Runs, program: str, suite: Suite, *, stop_early: bool) -> tuple[TestReport, ...]:
    """Judge a program by its tests.

    Args:
        pool: Runs it.
        program: Its source.
        suite: The tests.
        stop_early: Leave out what comes after the first test that fails.

    Returns:
        Reports in order of `index`; with `stop_early` maybe not of every test, but then with one
        that is not `AC`.
    """
    source = f"{suite.preamble}\n{program}" if suite.preamble else program
    reports: list[TestReport] = []
    for part in (_call_reports, _stdio_reports, _judged_elsewhere):
        for report in part(pool, source, suite, stop_early):
            reports.append(report)
            if stop_early and report.verdict is not TestVerdict.AC:
                return tuple(sorted(reports, key=lambda one: one.index))
    return tuple(sorted(reports, key=lambda one: one.index))


def _call_reports(pool: Runs, source: str, suite: Suite, stop_early: bool) -> Iterator[TestReport]:
    """All calls of all tests are made by one process."""
    tests = [
        (i, test)
        for i, test in enumerate(suite.tests)
        if isinstance(test, (FunctionTest, AssertTest))
    ]
    if not tests:
        return
    calls = tuple(call for _, test in tests for call in test.calls)
    job = Job(program=source, calls=calls, limits=suite.limits, stop_early=stop_early)
    results = pool.run(job)
    start = 0
    for index, test in tests:
        own = results[start : start + len(test.calls)]
        start += len(test.calls)
        yield _judge_calls(index, test, own)


def _judge_calls(index: int, test: CallTest, results: Sequence[ExecResult]) -> TestReport:
    failed = next((one for one in results if one.status is not ExecStatus.OK), None)
    if failed is not None:
        return _report(index, TestVerdict(failed.status), failed.detail, results)
    if len(results) < len(test.calls):
        raise AssertionError("a job stopped early without a run that failed")
    values = [one.value for one in results]
    try:
        holds = test.holds(values)
    except Exception as error:  # noqa: BLE001 (on such values, as the assert itself would)
        why = f"{type(error).__name__}: {error}"
        return _report(index, TestVerdict.WA, f"{_brief(values)}: {why}"[:400], results)
    if holds:
        return _report(index, TestVerdict.AC, "", results)
    return _report(index, TestVerdict.WA, f"returned {', '.join(map(_brief, values))}", results)


def _stdio_reports(pool: Runs, source: str, suite: Suite, stop_early: bool) -> Iterator[TestReport]:
    tests = [(i, test) for i, test in enumerate(suite.tests) if isinstance(test, StdioTest)]
    for start in range(0, len(tests), INPUTS_PER_JOB):
        chunk = tests[start : start + INPUTS_PER_JOB]
        inputs = tuple(test.stdin.encode("utf-8", "surrogateescape") for _, test in chunk)
        job = Job(program=source, inputs=inputs, limits=suite.limits, stop_early=stop_early)
        for (index, test), result in zip(chunk, pool.run(job), strict=False):
            yield _judge_output(index, test, result)


def _judged_elsewhere(
    _pool: Runs, _source: str, suite: Suite, _stop_early: bool
) -> Iterator[TestReport]:
    for index, test in enumerate(suite.tests):
        if isinstance(test, (ProgramTest, CheckerTest)):
            yield TestReport(
                index=index,
                verdict=TestVerdict.IE,
                detail="no container for test code was given",
                infra=InfraCause.HARNESS,
            )


def _judge_output(index: int, test: StdioTest, result: ExecResult) -> TestReport:
    if result.status is not ExecStatus.OK:
        return _report(index, TestVerdict(result.status), result.detail, [result])
    output = result.stdout.decode("utf-8", "replace")
    if any(test.comparer.same(output, expected) for expected in test.expected):
        return _report(index, TestVerdict.AC, "", [result])
    return _report(index, TestVerdict.WA, f"printed {_brief(output)}", [result])


def _report(
    index: int, verdict: TestVerdict, detail: str, results: Sequence[ExecResult]
) -> TestReport:
    return TestReport(
        index=index,
        verdict=verdict,
        detail=detail,
        cpu_s=sum(one.cpu_s for one in results),
        wall_s=sum(one.wall_s for one in results),
        memory_mb=max(one.memory_mb for one in results),
        flags=frozenset[Flag]().union(*(one.flags for one in results)),
        infra=next((one.infra for one in results if one.infra is not None), None),
    )


def _brief(value: Any) -> str:
    """The value for a person, in a few words."""
    if isinstance(value, Opaque):
        return repr(value)
    try:
        text = repr(value)
    except ValueError:  # an int with more digits than are ever written out
        return f"a large {type(value).__name__}"
    return text if len(text) <= _BRIEF_CHARS else text[: _BRIEF_CHARS - 3] + "..."
