"""Every verifier of a run behind one call, with the one broad catch around them."""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from verifiers.problem import Problem, Submission
from verifiers.protocol import Verifier
from verifiers.registry import build_verifier
from verifiers.verdict import Reason, Status, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A submission whose verdict is known: part of the self-check at start-up."""

    submission: Submission
    status: Status

    @classmethod
    def of(cls, verifier: str, reference: Any, completion: str, status: Status) -> Example:
        """An example that needs no more than a reference and a completion."""
        problem = Problem(
            id=f"self-check {verifier}",
            prompt="",
            verifier=verifier,
            reference=reference,
            source="self-check",
        )
        return cls(submission=Submission(problem=problem, completion=completion), status=status)


@runtime_checkable
class HasExamples(Protocol):
    """A verifier that brings answers known to be right and wrong."""

    def examples(self) -> Sequence[Example]:
        """Examples that must get their status through any path a real submission takes."""
        ...


class Judge:
    """Holds verifiers by name and sends each submission to the one that its problem names.

    Args:
        specs: Options of each verifier, by its name (see `verifiers.registry.build_verifier`).
    """

    def __init__(self, specs: Mapping[str, Mapping[str, Any]]) -> None:
        self._verifiers: dict[str, Verifier] = {}
        try:
            for name, options in specs.items():
                self._verifiers[name] = build_verifier(name, options)
        except BaseException:
            self.close()
            raise

    def prepare(self, problem: Problem) -> None:
        """Check that a problem can be judged.

        Raises:
            BadReference: It cannot.
        """
        self._verifiers[problem.verifier].prepare(problem)

    def judge(self, submission: Submission) -> Verdict:
        """The verdict of the problem's verifier; `ERROR` with the traceback when that raises."""
        started = time.perf_counter()
        name = submission.problem.verifier
        try:
            return self._verifiers[name].verify(submission)
        except Exception:  # noqa: BLE001 - whatever went wrong, the completion is not what was judged
            return Verdict(
                status=Status.ERROR,
                score=None,
                reason=Reason.VERIFIER_RAISED,
                verifier=name,
                seconds=time.perf_counter() - started,
                detail=traceback.format_exc(),
            )

    def judge_batch(self, submissions: Sequence[Submission]) -> list[Verdict]:
        """Verdicts in the order of the submissions."""
        return [self.judge(submission) for submission in submissions]

    def self_check(self) -> list[str]:
        """Judge every verifier's known answers; a sentence for each wrong verdict."""
        faults = []
        for name, verifier in self._verifiers.items():
            for example in verifier.examples() if isinstance(verifier, HasExamples) else ():
                verdict = self.judge(example.submission)
                if verdict.status != example.status:
                    faults.append(
                        f"{name} judged {example.submission.completion!r} against "
                        f"{example.submission.problem.reference!r} as {verdict.status} "
                        f"({verdict.reason}; "
                        f"{verdict.detail}), which is {example.status}"
                    )
        return faults

    def close(self) -> None:
        """Close every verifier."""
        for verifier in self._verifiers.values():
            verifier.close()
