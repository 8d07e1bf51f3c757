"""What the verifiers of short answers share: the way from a completion to its answer."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from verifiers.extraction import Found, Policy, find_answer, find_final_reply
from verifiers.problem import Submission
from verifiers.verdict import UNVERIFIED, Reason, Status, Verdict
from verifiers.workers import Failure, Outcome

MAX_EXTRACTED_CHARS = 1000

_TEMPLATES: Mapping[Policy, str] = {
    "boxed": "\\boxed{%s}",
    "answer_tag": "<answer>%s</answer>",
    "hash": "#### %s",
    "answer_line": "Answer: %s",
    "whole": "%s",
    "last_number": "%s",
    "lenient": "\\boxed{%s}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """A verdict without who reached it, how long it took and on which words.

    Attributes:
        score: Where the verifier grades in parts; by default 1 for `CORRECT`, 0 otherwise.
        components: As in `Verdict`.
    """

    status: Status
    reason: Reason
    detail: str | None = None
    score: float | None = None
    components: Mapping[str, float] = field(default_factory=dict[str, float])

    @classmethod
    def bad_gold(cls, detail: str) -> Ruling:
        """The row's reference cannot be read."""
        return cls(status=Status.BAD_GOLD, reason=Reason.UNREADABLE_REFERENCE, detail=detail)

    @classmethod
    def wrong(cls, reason: Reason, detail: str | None = None) -> Ruling:
        """The answer is wrong."""
        return cls(status=Status.INCORRECT, reason=reason, detail=detail)

    @classmethod
    def failed(cls, outcome: Outcome) -> Ruling:
        """A job in a worker process has no value: the completion's doing, or the machine's."""
        match outcome.failure:
            case Failure.DEADLINE | Failure.MEMORY:
                status, reason = Status.LIMIT, Reason(outcome.failure.value)
            case Failure.STALLED:
                status, reason = Status.ERROR, Reason.STALLED
            case Failure.DIED:
                status, reason = Status.ERROR, Reason.WORKER_DIED
            case _:
                assert outcome.failure is Failure.RAISED, outcome
                status, reason = Status.ERROR, Reason.VERIFIER_RAISED
        return cls(status=status, reason=reason, detail=outcome.detail)

    def sign(self, verifier: str, started: float, extracted: str | None = None) -> Verdict:
        """The verdict; `started` is of `time.perf_counter`."""
        score = self.score
        if self.status in UNVERIFIED:
            score = None
        elif score is None:
            score = float(self.status is Status.CORRECT)
        return Verdict(
            status=self.status,
            score=score,
            reason=self.reason,
            verifier=verifier,
            extracted=None if extracted is None else extracted[:MAX_EXTRACTED_CHARS],
            components=self.components,
            seconds=time.perf_counter() - started,
            detail=self.detail,
        )


def extract_reply(
    submission: Submission, extraction: Policy, allow_truncated: bool
) -> Found | Reason:
    """The answer in the final reply of a completion, or the reason why there is none."""
    if submission.truncated and not allow_truncated:
        return Reason.TRUNCATED
    reply = find_final_reply(submission.completion)
    return reply if isinstance(reply, Reason) else find_answer(reply, extraction)


def no_answer(reason: Reason, verifier: str, started: float) -> Verdict:
    """The verdict on a completion without an answer; `started` is of `time.perf_counter`."""
    return Verdict(
        status=Status.NO_ANSWER,
        score=0.0,
        reason=reason,
        verifier=verifier,
        seconds=time.perf_counter() - started,
    )


def write_reply(answer: str, extraction: Policy) -> str:
    """A completion in which the policy finds this answer; for self-checks."""
    return _TEMPLATES[extraction] % answer
