"""What the verifiers of short answers share: the way from a completion to its answer."""

from __future__ import annotations

import time
from collections.abc import Mapping

from verifiers.extraction import Found, Policy, find_answer, find_final_reply
from verifiers.problem import Submission
from verifiers.verdict import Reason, Status, Verdict

_TEMPLATES: Mapping[Policy, str] = {
    "boxed": "\\boxed{%s}",
    "answer_tag": "<answer>%s</answer>",
    "hash": "#### %s",
    "answer_line": "Answer: %s",
    "whole": "%s",
    "last_number": "%s",
    "lenient": "\\boxed{%s}",
}


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
