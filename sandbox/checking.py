"""Having an output judged by a checker program, in a container that runs no program under test."""

from __future__ import annotations

from dataclasses import dataclass

from sandbox.checkers import CHECKER_FUNCTION, Checker, CheckerTest
from sandbox.expressions import truth
from sandbox.limits import Limits
from sandbox.result import Call, ExecResult, ExecStatus, InfraCause, Job, Runs

CHECKER_CPU_S = 10.0
_REJECTING_CODES = (1, 2)
_WORDS = {"1": True, "true": True, "0": False, "false": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What a checker says.

    Attributes:
        accepted: Whether the output is right; None when that is not known.
        detail: For a person.
        infra: Why it is not known; exactly when it is not.
    """

    accepted: bool | None
    detail: str = ""
    infra: InfraCause | None = None


def check_output(judges: Runs, test: CheckerTest, output: str) -> Check:
    """Ask the test's checker about an output.

    A checker that fails is tried once more on the expected output. If it takes that, the output has
    made it fail, and is wrong; if not, the checker is no good.

    Args:
        judges: Run the checker.
        test: The test.
        output: What the program printed.
    """
    result = _run(judges, test, output)
    if result.infra is not None:
        return Check(accepted=None, detail=result.detail, infra=result.infra)
    accepted = _accepted(test.checker, result)
    if accepted is not None:
        return Check(accepted=accepted, detail="" if accepted else "the checker rejects the output")
    why = f"the checker ended with {result.status}: {result.detail}"
    sound = result.status is ExecStatus.RE
    if test.expected:
        again = _run(judges, test, test.expected)
        if again.infra is not None:
            return Check(accepted=None, detail=again.detail, infra=again.infra)
        sound = _accepted(test.checker, again) is True
    if sound:
        return Check(accepted=False, detail=why)
    return Check(accepted=None, detail=why, infra=InfraCause.BAD_TEST)


def _run(judges: Runs, test: CheckerTest, output: str) -> ExecResult:
    limits = Limits(cpu_s=CHECKER_CPU_S)
    texts = (test.stdin, test.expected, output)
    if test.checker.form == "function":
        calls = (Call(function=CHECKER_FUNCTION, arguments=texts),)
        return judges.run(Job(program=test.checker.source, calls=calls, limits=limits))[0]
    files = tuple(text.encode("utf-8", "surrogateescape") for text in texts)
    job = Job(program=test.checker.source, inputs=(b"",), files=files, limits=limits)
    return judges.run(job)[0]


def _accepted(checker: Checker, result: ExecResult) -> bool | None:
    """What the checker's run says; None where it says nothing."""
    if checker.form == "function":
        # Some give a reason on the side.
        value = next(iter(result.value), None) if isinstance(result.value, tuple) else result.value
        known = result.status is ExecStatus.OK and isinstance(value, (bool, int, float))
        return truth(value) if known else None
    if result.status not in (ExecStatus.OK, ExecStatus.RE):
        return None
    words = result.stdout.decode("utf-8", "replace").split()
    if words and words[-1].lower() in _WORDS:
        return _WORDS[words[-1].lower()]
    if result.status is ExecStatus.OK:
        return _score(words[-1]) if words else True
    return False if result.exit_code in _REJECTING_CODES and not _traceback(result) else None


def _score(word: str) -> bool | None:
    """A printed score: only the full one will do."""
    try:
        return float(word) >= 1.0
    except ValueError:
        return None


def _traceback(result: ExecResult) -> bool:
    return result.stderr.startswith("Traceback")
