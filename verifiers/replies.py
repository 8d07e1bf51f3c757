"""What the verifiers of short answers share: the way from a completion to its answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from verifiers.example import Example
from verifiers.extraction import Found, Policy, check_policy, find_answer, find_final_reply
from verifiers.problem import Problem, Submission
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
        extracted: The part of the answer that was judged, where that was not all of it.
        components: As in `Verdict`.
    """

    status: Status
    reason: Reason
    detail: str | None = None
    score: float | None = None
    extracted: str | None = None
    components: Mapping[str, float] = field(default_factory=dict[str, float])

    @classmethod
    def bad_gold(cls, detail: str) -> Ruling:
        """The row's reference cannot be read."""
        return cls(status=Status.BAD_GOLD, reason=Reason.UNREADABLE_REFERENCE, detail=detail)

    @classmethod
    def no_answer(cls, reason: Reason) -> Ruling:
        """The completion does not answer."""
        return cls(status=Status.NO_ANSWER, reason=reason)

    @classmethod
    def too_long(cls) -> Ruling:
        """The answer is longer than any that is read."""
        return cls(status=Status.LIMIT, reason=Reason.TOO_LONG)

    @classmethod
    def right(cls, reason: Reason) -> Ruling:
        """The answer is right."""
        return cls(status=Status.CORRECT, reason=reason)

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
        score, extracted = self.score, self.extracted or extracted
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


class ReplyReader:
    """Finds the short answer in a completion, for a verifier that rules on nothing else.

    Args:
        extraction: Where the answer stands; see `verifiers.extraction.find_answer`.
        allow_truncated: Whether a completion that was cut off at the length limit has an answer.

    Raises:
        UserError: There is no such extraction policy.
    """

    def __init__(self, extraction: Policy, *, allow_truncated: bool) -> None:
        self.extraction: Policy = check_policy(extraction)
        self._allow_truncated = allow_truncated

    def find(self, submission: Submission) -> Found | Reason:
        """The answer in the final reply of a completion, or the reason why there is none."""
        if submission.truncated and not self._allow_truncated:
            return Reason.TRUNCATED
        reply = find_final_reply(submission.completion)
        return reply if isinstance(reply, Reason) else find_answer(reply, self.extraction)

    def judge(
        self, submission: Submission, verifier: str, rule: Callable[[Problem, str], Ruling]
    ) -> Verdict:
        """The verdict on a completion.

        Args:
            submission: The completion, and its problem.
            verifier: Name and version of who judges.
            rule: What it says about the answer, where there is one.
        """
        started = time.perf_counter()
        found = self.find(submission)
        if isinstance(found, Reason):
            return Ruling.no_answer(found).sign(verifier, started)
        return rule(submission.problem, found.text).sign(verifier, started, found.text)

    def make_examples(
        self, verifier: str, reference: Any, *, right: str, wrong: str
    ) -> list[Example]:
        """A right and a wrong answer to one reference, each in a completion."""
        return [
            Example.of(verifier, reference, write_reply(answer, self.extraction), status)
            for answer, status in ((right, Status.CORRECT), (wrong, Status.INCORRECT))
        ]


def write_reply(answer: str, extraction: Policy) -> str:
    """A completion in which the policy finds this answer; for self-checks."""
    return _TEMPLATES[extraction] % answer
