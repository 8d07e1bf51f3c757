"""The verifier of short texts: letter for letter, or word for word."""

from __future__ import annotations

from collections.abc import Sequence

from verifiers.errors import BadReference
from verifiers.example import Example
from verifiers.extraction import Policy
from verifiers.maths.words import normalize_words
from verifiers.problem import Problem, Submission
from verifiers.protocol import Verifier
from verifiers.replies import ReplyReader, Ruling
from verifiers.verdict import Reason, Verdict


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
        self._reader = ReplyReader(extraction, allow_truncated=allow_truncated)
        self._strict = strict

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
        return self._reader.judge(submission, self.label, self._rule)

    def examples(self) -> Sequence[Example]:
        """A right and a wrong answer."""
        return self._reader.make_examples(self.name, "7 apples", right="7 apples", wrong="8")

    def _rule(self, problem: Problem, answer: str) -> Ruling:
        accepted = {self._normalize(text) for text in _accepted(problem.reference)}
        if not accepted or "" in accepted:
            return Ruling.bad_gold("no text, number or non-empty list of these")
        if self._normalize(answer) in accepted:
            return Ruling.right(Reason.EQUAL_TEXT)
        return Ruling.wrong(Reason.DIFFERENT)

    def _normalize(self, text: str) -> str:
        return text.strip() if self._strict else normalize_words(text)


def _accepted(reference: object) -> list[str]:
    items = reference if isinstance(reference, list | tuple) else [reference]
    return [str(item) for item in items if isinstance(item, str | int | float)]
