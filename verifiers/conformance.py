"""What every verifier must keep to, checked from outside: for authors of their own functions."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from verifiers.conformance_inputs import hostile_completions, ordinary_completions
from verifiers.errors import BadReference, UserError
from verifiers.hash_seeds import judge_under_hash_seeds
from verifiers.judge import Judge
from verifiers.problem import Submission
from verifiers.verdict import Reason, Status, Verdict

NUM_THREADS = 4
GRACE_S = 2.0
DEFAULT_WALL_LIMIT_S = 30.0
_SHOWN = 3
_FAULT_CHARS = 200
_RAISED = frozenset({Reason.VERIFIER_RAISED, Reason.WORKER_DIED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The outcome of one rule; `passed` is None where it does not apply."""

    name: str
    passed: bool | None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownAnswer:
    """A submission with what it must be judged as; None where nobody said."""

    submission: Submission
    right: bool | None = None


def run_conformance(
    spec: str, options: Mapping[str, Any], known: Sequence[KnownAnswer]
) -> Iterator[Check]:
    """Check a verifier rule by rule; each outcome comes as soon as it is known.

    Args:
        spec: As `build_verifier` takes it.
        options: Options of the verifier.
        known: At least one row for it to judge; those marked right and wrong are also judged as
            such, beside the examples that the verifier itself brings.
    """
    try:
        judge = Judge({spec: options})
    except UserError as error:
        yield Check(name="can be built", passed=False, detail=str(error))
        return
    yield Check(name="can be built", passed=True)
    try:
        for item in known:
            judge.prepare(item.submission.problem)
        for rule in _Suite(judge, spec, options, known).rules():
            yield rule()
    except BadReference as error:
        detail = f"{error}. Give a row that it takes: --gold, or a file with the columns it needs"
        yield Check(name="takes the row", passed=False, detail=detail)
    finally:
        judge.close()


class _Suite:
    def __init__(
        self,
        judge: Judge,
        spec: str,
        options: Mapping[str, Any],
        known: Sequence[KnownAnswer],
    ) -> None:
        self._judge = judge
        self._spec, self._options = spec, options
        self._known = known
        self._problem = known[0].submission.problem
        self._wall_limit_s = float(options.get("wall_limit_s", DEFAULT_WALL_LIMIT_S))
        self._ordinary = [item.submission for item in known] + [
            Submission(problem=self._problem, completion=text)
            for text in ordinary_completions(self._problem.reference)
        ]
        self._verdicts: list[Verdict] = []
        self._stalled: list[str] = []
        self._slowest = (0.0, "")

    def rules(self) -> Sequence[Callable[[], Check]]:
        """The rules in their order; later ones use what earlier ones saw."""
        return (
            self._returns_a_legal_value,
            self._knows_right_from_wrong,
            self._never_raises,
            self._keeps_to_its_limits,
            self._repeats_itself,
            self._ignores_the_hash_seed,
        )

    def _returns_a_legal_value(self) -> Check:
        self._verdicts = [self._judge.verify(submission) for submission in self._ordinary]
        faults = []
        for submission, verdict in zip(self._ordinary, self._verdicts, strict=True):
            if verdict.status is Status.ERROR and verdict.reason is not Reason.ABSTAINED:
                faults.append(f"{submission.completion!r}: {_last_line(verdict)}")
            elif fault := _find_illegal(verdict):
                faults.append(f"{submission.completion!r}: {fault}")
        return _check("returns a legal value", faults)

    def _knows_right_from_wrong(self) -> Check:
        name = "knows right from wrong"
        faults = self._judge.self_check()
        marked = [item for item in self._known if item.right is not None]
        for item in marked:
            verdict = self._judge.verify(item.submission)
            if (verdict.status is Status.CORRECT) is not item.right:
                expected = "right" if item.right else "wrong"
                faults.append(
                    f"{item.submission.completion!r} is {expected} for "
                    f"{item.submission.problem.reference!r}, not {verdict.status} "
                    f"({verdict.reason})"
                )
        if not marked and not faults:
            return self._tell_apart(name)
        return _check(name, faults, f"{len(marked)} known answers")

    def _tell_apart(self, name: str) -> Check:
        """Without known answers: some way of stating the reference is right, and not all texts."""
        right = [verdict.status is Status.CORRECT for verdict in self._verdicts]
        hint = "give --gold and --answer, or a file with the column `expected`, to have it judged"
        if all(right):
            fault = f"every ordinary completion is right, the empty one too; {hint}"
            return Check(name=name, passed=False, detail=fault)
        if not any(right):
            detail = f"no usual way of stating the reference is right; {hint}"
            return Check(name=name, passed=None, detail=detail)
        detail = f"{sum(right)} of {len(right)} ordinary completions are right"
        return Check(name=name, passed=True, detail=detail)

    def _never_raises(self) -> Check:
        faults, limited = [], []
        for name, submission in hostile_completions(self._problem):
            started = time.perf_counter()
            verdict = self._judge.verify(submission)
            self._slowest = max(self._slowest, (time.perf_counter() - started, name))
            if verdict.reason in _RAISED:
                faults.append(f"{name}: {_last_line(verdict)}")
            elif verdict.reason is Reason.STALLED:
                self._stalled.append(name)
            elif verdict.status is Status.LIMIT:
                limited.append(name)
        detail = f"reached its limits on: {', '.join(limited)}" if limited else ""
        return _check("never raises for hostile completions", faults, detail)

    def _keeps_to_its_limits(self) -> Check:
        seconds, name = self._slowest
        faults = [f"{case}: waited without computing" for case in self._stalled]
        if seconds > self._wall_limit_s + GRACE_S:
            faults.append(f"{name}: {seconds:.1f} s, the limit is {self._wall_limit_s:g} s")
        return _check("keeps to its limits", faults, f"slowest: {name}, {seconds:.2f} s")

    def _repeats_itself(self) -> Check:
        """In the same order, then from several threads in the reverse order."""
        again = [self._judge.verify(submission) for submission in self._ordinary]
        with ThreadPoolExecutor(NUM_THREADS) as threads:
            mixed = list(threads.map(self._judge.verify, reversed(self._ordinary)))[::-1]
        faults = [
            f"{submission.completion!r}: {' or '.join(sorted(found))}"
            for submission, *verdicts in zip(
                self._ordinary, self._verdicts, again, mixed, strict=True
            )
            if len(found := {_essence(verdict) for verdict in verdicts}) > 1
        ]
        return _check("gives the same verdict again, also from threads", faults)

    def _ignores_the_hash_seed(self) -> Check:
        safe = [
            submission
            for submission, verdict in zip(self._ordinary, self._verdicts, strict=True)
            if verdict.status in (Status.CORRECT, Status.INCORRECT, Status.NO_ANSWER)
        ]
        runs = judge_under_hash_seeds(self._spec, self._options, safe)
        faults = [
            f"{submission.completion!r}: {' or '.join(sorted(set(found)))}"
            for submission, *found in zip(safe, *runs, strict=True)
            if len(set(found)) > 1
        ]
        return _check("gives the same verdict for every hash seed", faults)


def _check(name: str, faults: Sequence[str], detail: str = "") -> Check:
    if not faults:
        return Check(name=name, passed=True, detail=detail)
    shown = [f"{fault[:_FAULT_CHARS]}{'...' * (len(fault) > _FAULT_CHARS)}" for fault in faults]
    more = f"; and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
    return Check(name=name, passed=False, detail="; ".join(shown[:_SHOWN]) + more)


def _find_illegal(verdict: Verdict) -> str | None:
    """What about a verdict could not be kept or sent; None for a good one."""
    if not isinstance(verdict.status, Status) or not isinstance(verdict.reason, Reason):
        return f"status {verdict.status!r} or reason {verdict.reason!r} is none of the vocabulary"
    if not all(isinstance(value, int | float) for value in verdict.components.values()):
        return f"components {dict(verdict.components)!r} are not all numbers"
    try:
        json.dumps([dict(verdict.components), verdict.report])
        pickle.loads(pickle.dumps(verdict))  # noqa: S301 - made on this line
    except Exception as error:  # noqa: BLE001 - anything may be in a report
        return f"cannot be written down: {error}"
    return None


def _essence(verdict: Verdict) -> str:
    """All of a verdict but the time it took."""
    parts = f"{verdict.status} ({verdict.reason}), score {verdict.score}"
    for extra in (verdict.extracted, dict(verdict.components), verdict.report, verdict.detail):
        parts += f", {extra!r}" if extra else ""
    return parts


def _last_line(verdict: Verdict) -> str:
    return (verdict.detail or str(verdict.reason)).strip().splitlines()[-1]
