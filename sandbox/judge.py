"""Judging a program: its runs are made in the sandbox, what they gave is compared here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sandbox.checkers import CheckerTest
from sandbox.checking import check_output
from sandbox.container.values import Opaque
from sandbox.limits import Limits
from sandbox.programs import ProgramTest
from sandbox.result import ExecResult, ExecStatus, Flag, InfraCause, Job, Runs
from sandbox.suite import CallTest, OutputTest, Suite, Test
from sandbox.trial import Ending, Outcome, run_trial

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bench:
    """What a program is judged with: containers for it, and others for code of its tests."""

    pool: Runs
    judges: Runs | None
    source: str
    limits: Limits
    stop_early: bool

    def job(self, **what: Any) -> Job:
        return Job(program=self.source, limits=self.limits, stop_early=self.stop_early, **what)

    @property
    def for_tests(self) -> Runs:
        assert self.judges is not None, "a suite with test code needs containers for it"
        return self.judges


def judge(
    pool: Runs, program: str, suite: Suite, *, stop_early: bool, judges: Runs | None = None
) -> tuple[TestReport, ...]:
    """Judge a program by its tests.

    Args:
        pool: Runs it.
        program: Its source.
        suite: The tests.
        stop_early: Leave out what comes after the first test that fails.
        judges: Run test programs and checkers; needed where `suite.needs_judges`.

    Returns:
        Reports in order of `index`; with `stop_early` maybe not of every test, but then with one
        that is not `AC`.
    """
    source = suite.source(program)
    bench = _Bench(
        pool=pool, judges=judges, source=source, limits=suite.limits, stop_early=stop_early
    )
    reports: list[TestReport] = []
    for part in (_call_reports, _output_reports, _program_reports):
        for report in part(bench, suite.tests):
            reports.append(report)
            if stop_early and report.verdict is not TestVerdict.AC:
                return tuple(sorted(reports, key=lambda one: one.index))
    return tuple(sorted(reports, key=lambda one: one.index))


def _call_reports(bench: _Bench, every: Sequence[Test]) -> Iterator[TestReport]:
    """All calls of all tests are made by one process."""
    tests = [(i, test) for i, test in enumerate(every) if isinstance(test, CallTest)]
    if not tests:
        return
    calls = tuple(call for _, test in tests for call in test.calls)
    results = bench.pool.run(bench.job(calls=calls))
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


def _output_reports(bench: _Bench, every: Sequence[Test]) -> Iterator[TestReport]:
    tests = [(i, test) for i, test in enumerate(every) if isinstance(test, OutputTest)]
    for start in range(0, len(tests), INPUTS_PER_JOB):
        chunk = tests[start : start + INPUTS_PER_JOB]
        inputs = tuple(test.stdin.encode("utf-8", "surrogateescape") for _, test in chunk)
        results = bench.pool.run(bench.job(inputs=inputs))
        for (index, test), result in zip(chunk, results, strict=False):
            yield _judge_output(bench, index, test, result)


def _program_reports(bench: _Bench, every: Sequence[Test]) -> Iterator[TestReport]:
    for index, test in enumerate(every):
        if isinstance(test, ProgramTest):
            outcome = run_trial(bench.pool, bench.for_tests, bench.source, test, bench.limits)
            yield _judge_outcome(index, outcome)


def _judge_outcome(index: int, outcome: Outcome) -> TestReport:
    match outcome.ending:
        case Ending.PASSED:
            return _report(index, TestVerdict.AC, outcome.detail, [outcome.result])
        case Ending.FAILED:
            return _report(index, TestVerdict.WA, outcome.detail, [outcome.result])
        case Ending.PROGRAM:
            verdict = TestVerdict(outcome.result.status)
            return _report(index, verdict, outcome.detail, [outcome.result])
        case Ending.BAD_TEST:
            return _not_judged(index, InfraCause.BAD_TEST, outcome.detail)


def _judge_output(bench: _Bench, index: int, test: OutputTest, result: ExecResult) -> TestReport:
    if result.status is not ExecStatus.OK:
        return _report(index, TestVerdict(result.status), result.detail, [result])
    output = result.stdout.decode("utf-8", "replace")
    printed = f"printed {_brief(output)}"
    if isinstance(test, CheckerTest):
        check = check_output(bench.for_tests, test, output)
        if check.infra is not None:
            return _not_judged(index, check.infra, check.detail)
        accepted, detail = check.accepted, f"{check.detail}: {printed}"
    else:
        accepted = any(test.comparer.same(output, expected) for expected in test.expected)
        detail = printed
    if accepted:
        return _report(index, TestVerdict.AC, "", [result])
    return _report(index, TestVerdict.WA, detail, [result])


def _not_judged(index: int, infra: InfraCause, detail: str) -> TestReport:
    return TestReport(index=index, verdict=TestVerdict.IE, detail=detail, infra=infra)


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
