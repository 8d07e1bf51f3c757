"""The `code` verifier: right is a program that passes the problem's tests in the sandbox."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Sequence
from typing import Any, Literal, get_args

from sandbox.backends import check_backend, open_pool
from sandbox.errors import BadTest, SandboxUnavailable
from sandbox.judge import TestReport, TestVerdict, judge
from sandbox.limits import Limits
from sandbox.on_demand import LARGE_MEMORY_MB, pool_for_large_programs, pool_for_tests
from sandbox.options import Backend, Isolation, SandboxOptions
from sandbox.pool import PoolStats, SandboxPool
from sandbox.result import InfraCause, Runs
from sandbox.suite import Suite
from sandbox.suite_reader import read_suite
from verifiers.code_block import Extraction, find_program
from verifiers.errors import BadReference, UserError
from verifiers.example import Example
from verifiers.problem import Problem, Submission
from verifiers.protocol import Placement, Verifier
from verifiers.verdict import UNVERIFIED, Reason, Status, Verdict

Scoring = Literal["all", "fraction"]

MAX_PROGRAM_CHARS = 1 << 20
_CACHED_SUITES = 4096
_INFRA_REASONS = {
    InfraCause.STALLED: Reason.STALLED,
    InfraCause.LOST: Reason.WORKER_DIED,
    InfraCause.UNAVAILABLE: Reason.SANDBOX_UNAVAILABLE,
    InfraCause.HARNESS: Reason.SANDBOX_UNAVAILABLE,
    InfraCause.BAD_TEST: Reason.UNREADABLE_REFERENCE,
}


class CodeVerifier(Verifier):
    """Judges programs by hidden tests; one instance a machine, called from many threads.

    The reference is a list of tests, or an object with `tests` and what they have in common: see
    docs/sandbox.md.

    Example:
        >>> verifier = CodeVerifier(pool_size=2)
        >>> tests = [{"kind": "function", "entry_point": "add", "args": [1, 2], "expected": 3}]
        >>> problem = Problem(
        ...     id="add", prompt="Write add.", verifier="code", reference=tests, source="doc:1"
        ... )
        >>> verifier.prepare(problem)
    """

    name = "code"
    version = 1
    placement: Placement = "node"

    def __init__(
        self,
        *,
        scoring: Scoring = "all",
        extract: Extraction = "block",
        cpu_s: float = 4.0,
        wall_s: float | None = None,
        memory_mb: int = 256,
        stdout_kb: int = 1024,
        image: str | None = None,
        runtime: str | None = None,
        pool_size: int | None = None,
        isolation: Isolation = "uid",
        backend: Backend = "docker",
        allow_unsafe_backend: bool = False,
    ) -> None:
        """Take the settings; no container is started before `start`, or the first `verify`.

        Args:
            scoring: `all`: 1 when every test passes, else 0, and judging stops at the first that
                fails. `fraction`: the share of tests that pass.
            extract: `block`: the program is the last fenced code block after any reasoning.
                `first_block`: the first one there. `text`: it is the whole completion.
            cpu_s: CPU seconds of one test, unless the problem says otherwise.
            wall_s: Wall seconds of one test; by default the larger of 3 times `cpu_s` and `cpu_s` +
                4.
            memory_mb: Memory of one program, unless the problem says otherwise; one that asks for
                more, up to 2048, has its programs run one at a time.
            stdout_kb: Output of one test.
            image: Docker image, by default the one that `verigrad sandbox build` makes.
            runtime: Docker runtime, such as `runsc`.
            pool_size: Programs that run at a time on this machine, by default one for each CPU.
            isolation: What keeps programs from each other: see `sandbox.options.SandboxOptions`.
            backend: What keeps them from the machine.
            allow_unsafe_backend: Take a backend that does not hold hostile programs.

        Raises:
            UserError: A setting has no such value.
        """
        if scoring not in ("all", "fraction"):
            raise UserError(
                f"scoring of the code verifier is `all` or `fraction`, not {scoring!r}."
            )
        if extract not in get_args(Extraction):
            known = ", ".join(get_args(Extraction))
            raise UserError(f"extract of the code verifier is one of {known}, not {extract!r}.")
        self._scoring = scoring
        self._extract: Extraction = extract
        given = {"image": image, "runtime": runtime, "pool_size": pool_size}
        try:
            limits = Limits(cpu_s=cpu_s, wall_s=wall_s, memory_mb=memory_mb, stdout_kb=stdout_kb)
            chosen: dict[str, Any] = {key: one for key, one in given.items() if one is not None}
            self._options = SandboxOptions(
                limits=limits,
                isolation=isolation,
                backend=backend,
                allow_unsafe_backend=allow_unsafe_backend,
                **chosen,
            )
        except ValueError as error:
            raise UserError(f"The code verifier cannot be set up so: {error}.") from error
        self._lock = threading.Lock()
        self._pool: SandboxPool | None = None
        self._judges = pool_for_tests(self._options)
        self._large = pool_for_large_programs(self._options)
        self._engine_checked = False
        self._suites: dict[tuple[str, str], tuple[Any, Suite]] = {}

    def start(self) -> None:
        """Start the containers, with every check that can be made before the first program.

        Raises:
            SandboxUnavailable: No program can be run here; the message says what to do.
        """
        self._started()

    def examples(self) -> Sequence[Example]:
        """Programs that must get their verdict before others are judged."""
        tests = [{"kind": "function", "entry_point": "f", "args": [2], "expected": 3}]
        programs = {"x + 1": Status.CORRECT, "x": Status.INCORRECT}
        return [
            Example.of(self.name, tests, self._as_completion(f"def f(x): return {body}\n"), status)
            for body, status in programs.items()
        ]

    def prepare(self, problem: Problem) -> None:
        """Read the problem's tests; the first time, also see whether programs can be run here.

        Raises:
            BadReference: They cannot be read, or ask for more than the sandbox grants.
            SandboxUnavailable: No program can be run here; the message says what to do.
        """
        self._check_engine_once()
        try:
            suite = self._suite(problem)
        except BadTest as error:
            raise BadReference(
                f"{problem.source}: the tests of problem {problem.id} cannot be used: {error}."
            ) from error
        granted = max(self._options.limits.memory_mb, LARGE_MEMORY_MB)
        if suite.limits.memory_mb > granted:
            raise BadReference(
                f"{problem.source}: problem {problem.id} asks for limits.memory_mb "
                f"{suite.limits.memory_mb}, and the sandbox grants {granted}. Raise memory_mb of "
                "the code verifier."
            )

    def verify(self, submission: Submission) -> Verdict:
        """Run the completion's program on the problem's tests."""
        program = find_program(submission.completion, self._extract, truncated=submission.truncated)
        suite = self._suite(submission.problem)
        nothing_run = {"num_tests": len(suite.tests), "tests": []}
        if isinstance(program, Reason):
            return self._verdict(Status.NO_ANSWER, 0.0, program, report=nothing_run)
        if len(program) > MAX_PROGRAM_CHARS:
            shown = program[:1000]
            return self._verdict(
                Status.LIMIT, 0.0, Reason.TOO_LONG, extracted=shown, report=nothing_run
            )
        try:
            pool = self._pool_for(suite)
        except SandboxUnavailable as error:
            return self._verdict(
                Status.ERROR, None, Reason.SANDBOX_UNAVAILABLE, extracted=program, detail=str(error)
            )
        start = time.monotonic()
        early = self._scoring == "all"
        reports = judge(pool, program, suite, stop_early=early, judges=self._judges)
        return self._from_reports(program, reports, len(suite.tests), time.monotonic() - start)

    def stats(self) -> PoolStats | None:
        """Counts of the containers for programs of usual size; None before they were started."""
        pool = self._pool
        return None if pool is None else pool.stats()

    def close(self) -> None:
        """Remove the containers."""
        with self._lock:
            pool, self._pool = self._pool, None
        self._judges.close()
        self._large.close()
        if pool is not None:
            pool.close()
            atexit.unregister(self.close)

    def _started(self) -> SandboxPool:
        with self._lock:
            if self._pool is None:
                self._pool = open_pool(self._options)
                atexit.register(self.close)
            return self._pool

    def _pool_for(self, suite: Suite) -> Runs:
        pool = self._started()  # in any case: that proves the limits on this machine
        usual = self._options.limits.memory_mb
        return self._large if suite.limits.memory_mb > usual else pool

    def _suite(self, problem: Problem) -> Suite:
        key = (problem.source, problem.id)
        known = self._suites.get(key)
        # The same object as a rule; else another problem of that name may have other tests.
        if known is not None and (known[0] is problem.reference or known[0] == problem.reference):
            return known[1]
        suite = read_suite(problem.reference, self._options.limits)
        with self._lock:
            if len(self._suites) >= _CACHED_SUITES:
                self._suites.clear()
            self._suites[key] = (problem.reference, suite)
        return suite

    def _as_completion(self, program: str) -> str:
        return program if self._extract == "text" else f"```python\n{program}```\n"

    def _check_engine_once(self) -> None:
        with self._lock:
            if self._pool is None and not self._engine_checked:
                check_backend(self._options)
                self._engine_checked = True

    def _from_reports(
        self, program: str, reports: Sequence[TestReport], num_tests: int, seconds: float
    ) -> Verdict:
        passed = sum(one.verdict is TestVerdict.AC for one in reports)
        share = passed / num_tests
        score: float | None = share if self._scoring == "fraction" else float(passed == num_tests)
        status, reason = _finding(reports, passed == num_tests)
        if status in UNVERIFIED:
            score = None
        failed = next((one for one in reports if one.verdict is not TestVerdict.AC), None)
        return self._verdict(
            status,
            score,
            reason,
            extracted=program,
            components={"tests_passed": share},
            seconds=seconds,
            detail=None
            if failed is None
            else f"test {failed.index}: {failed.verdict} {failed.detail}".strip(),
            report={"num_tests": num_tests, "tests": [_report_json(one) for one in reports]},
        )

    def _verdict(self, status: Status, score: float | None, reason: Reason, **more: Any) -> Verdict:
        verifier = f"{self.name}@{self.version}"
        return Verdict(status=status, score=score, reason=reason, verifier=verifier, **more)


def _finding(reports: Sequence[TestReport], all_passed: bool) -> tuple[Status, Reason]:
    """What the verdicts on the tests make of the program.

    A test that was not judged makes the whole program not verified: the share of the others would
    depend on the machine's luck.
    """
    if all_passed:
        return Status.CORRECT, Reason.TESTS_PASSED
    not_judged = next((one.infra for one in reports if one.infra is not None), None)
    if not_judged is not None:
        status = Status.BAD_GOLD if not_judged is InfraCause.BAD_TEST else Status.ERROR
        return status, _INFRA_REASONS[not_judged]
    first = next(one.verdict for one in reports if one.verdict is not TestVerdict.AC)
    match first:
        case TestVerdict.TLE:
            return Status.LIMIT, Reason.DEADLINE
        case TestVerdict.MLE:
            return Status.LIMIT, Reason.MEMORY
        case TestVerdict.OLE:
            return Status.LIMIT, Reason.TOO_LONG
        case _:
            return Status.INCORRECT, Reason.TESTS_FAILED


def _report_json(report: TestReport) -> dict[str, Any]:
    return {
        "test": report.index,
        "verdict": str(report.verdict),
        "detail": report.detail,
        "cpu_s": round(report.cpu_s, 4),
        "wall_s": round(report.wall_s, 4),
        "memory_mb": round(report.memory_mb, 1),
        "flags": sorted(map(str, report.flags)),
    }
