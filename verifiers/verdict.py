"""The verdict on one submission: a fact, with its reason, before any reward policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """What was found out.

    `CORRECT`, `INCORRECT`, `NO_ANSWER` and `LIMIT` were decided by the completion. `BAD_GOLD` and
    `ERROR` were not: such a submission is *not verified*, has no score and must leave the
    statistics of its group.
    """

    CORRECT = "correct"
    INCORRECT = "incorrect"
    NO_ANSWER = "no_answer"
    LIMIT = "limit"
    BAD_GOLD = "bad_gold"
    ERROR = "error"


UNVERIFIED = frozenset({Status.BAD_GOLD, Status.ERROR})


class Reason(StrEnum):
    """Why: the closed vocabulary of every verifier."""

    # correct
    EQUAL_TEXT = "equal.text"
    EQUAL_EXACT = "equal.exact"
    EQUAL_SYMBOLIC = "equal.symbolic"
    EQUAL_TOLERANCE = "equal.tolerance"
    TESTS_PASSED = "tests_passed"
    ACCEPTED = "accepted"
    # incorrect
    DIFFERENT = "different"
    TYPE_MISMATCH = "type_mismatch"
    UNEVALUATED = "unevaluated"
    UNPARSED = "unparsed"
    TESTS_FAILED = "tests_failed"
    REJECTED = "rejected"
    # no answer
    NO_BOX = "no_box"
    EMPTY_ANSWER = "empty_answer"
    MULTIPLE_ANSWERS = "multiple_answers"
    NOT_AT_END = "not_at_end"
    NO_CODE = "no_code"
    UNFINISHED_REASONING = "unfinished_reasoning"
    TRUNCATED = "truncated"
    NOT_FOUND = "not_found"
    # limit, caused by the completion
    TOO_LONG = "too_long"
    DEADLINE = "deadline"
    MEMORY = "memory"
    # not verified
    UNREADABLE_REFERENCE = "unreadable_reference"
    VERIFIER_RAISED = "verifier_raised"
    WORKER_DIED = "worker_died"
    STALLED = "stalled"
    SANDBOX_UNAVAILABLE = "sandbox_unavailable"
    ABSTAINED = "abstained"
    # not verified, since there is no completion
    NOT_SAMPLED = "not_sampled"
    REQUEST_TIMED_OUT = "request_timed_out"
    REQUEST_REFUSED = "request_refused"
    RATE_LIMITED = "rate_limited"
    SERVER_FAILED = "server_failed"
    BAD_REPLY = "bad_reply"
    CUT_SHORT = "cut_short"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a verifier found.

    Attributes:
        status: See `Status`.
        score: What the verifier measured, 1.0 for right and 0.0 for wrong unless it grades in
            parts; None exactly when the submission is not verified.
        reason: Why.
        verifier: Name and rule-set version, as `math@1`.
        extracted: The answer found in the completion, as written there; None where none was found.
        components: Parts of the score by name (tests passed, format, ...).
        seconds: Wall seconds spent on this verdict, queueing not counted.
        detail: For a person: the exception's text, the failing test; never the whole completion.
        report: Verifier-specific facts that are kept with the rollout (per-test results, ...);
            plain JSON values.

    Example:
        >>> Verdict(status=Status.CORRECT, score=1.0, reason=Reason.EQUAL_EXACT,
        verifier="math@1").verified True
    """

    status: Status
    score: float | None
    reason: Reason
    verifier: str
    extracted: str | None = None
    components: Mapping[str, float] = field(default_factory=dict[str, float])
    seconds: float = 0.0
    detail: str | None = None
    report: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        assert (self.score is None) == (self.status in UNVERIFIED), (self.status, self.score)

    @property
    def verified(self) -> bool:
        """Whether the completion was judged at all."""
        return self.status not in UNVERIFIED
