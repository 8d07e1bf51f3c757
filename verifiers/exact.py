"""The verifier of short texts: letter for letter, or word for word."""

from __future__ import annotations

import time
from collections.abc import Sequence

from verifiers.errors import BadReference
from verifiers.example import Example
from verifiers.extraction import Policy, check_policy
from verifiers.maths.words import normalize_words
from verifiers.problem import Problem, Submission
from verifiers.protocol import Verifier
from verifiers.replies import extract_reply, no_answer, write_reply
from verifiers.verdict import Reason, Status, Verdict


class ExactVerifier(Verifier):
    """Compares the answer with a text, or with each of a list of accepted texts.

    What counts is equality, never containment.

    Args:
        extraction: Where the answer stands; see `verifiers.extraction.find_answer`.
        strict: Compare letter for letter, after stripping white space at the ends. Otherwise case,
            punctuation, articles and LaTeX text commands do not count.
        allow_truncated: Judge a completion that was cut off at the length limit.

    Raises:
        UserError: There is no such extraction policy.
    """

    name = "exact"
    version = 1

    def __init__(
        self, *, extraction: Policy = "boxed", strict: bool = False, allow_truncated: bool = False
    ) -> None:
        self._extraction: Policy = check_policy(extraction)
        self._strict = strict
        self._allow_truncated = allow_truncated

    def prepare(self, problem: Problem) -> None:
        """Check that there is an accepted text and that none is empty.

        Raises:
            BadReference: There is none, or one says nothing.
        """
        accepted = _accepted(problem.reference)
        if not accepted or not all(self._normalize(text) for text in accepted):
            raise BadReference(
                f"{problem.source}: the reference {problem.reference!r} is no text, number or "
                "non-empty list of "
                "these, so the verifier `exact` cannot judge the row"
            )

    def verify(self, submission: Submission) -> Verdict:
        """Judge one completion."""
        started = time.perf_counter()
        label = f"{self.name}@{self.version}"
        found = extract_reply(submission, self._extraction, self._allow_truncated)
        if isinstance(found, Reason):
            return no_answer(found, label, started)
        accepted = {self._normalize(text) for text in _accepted(submission.problem.reference)}
        if not accepted or "" in accepted:
            return Verdict(
                status=Status.BAD_GOLD,
                score=None,
                reason=Reason.UNREADABLE_REFERENCE,
                verifier=label,
                extracted=found.text,
                seconds=time.perf_counter() - started,
            )
        right = self._normalize(found.text) in accepted
        return Verdict(
            status=Status.CORRECT if right else Status.INCORRECT,
            score=float(right),
            reason=Reason.EQUAL_TEXT if right else Reason.DIFFERENT,
            verifier=label,
            extracted=found.text,
            seconds=time.perf_counter() - started,
        )

    def examples(self) -> Sequence[Example]:
        """A right and a wrong answer."""
        return [
            Example.of(
                self.name, "7 apples", write_reply("7 apples", self._extraction), Status.CORRECT
            ),
            Example.of(self.name, "7 apples", write_reply("8", self._extraction), Status.INCORRECT),
        ]

    def _normalize(self, text: str) -> str:
        return text.strip() if self._strict else normalize_words(text)


def _accepted(reference: object) -> list[str]:
    items = reference if isinstance(reference, list | tuple) else [reference]
    return [str(item) for item in items if isinstance(item, str | int | float)]
