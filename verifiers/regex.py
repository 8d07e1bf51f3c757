"""The verifier of answers with a form: a regular expression that matches all of the answer."""

from __future__ import annotations

import re
from collections.abc import Sequence

from verifiers.errors import BadReference, UserError
from verifiers.example import Example
from verifiers.extraction import Policy
from verifiers.problem import Problem, Submission
from verifiers.protocol import Verifier
from verifiers.replies import ReplyReader, Ruling
from verifiers.verdict import Reason, Verdict
from verifiers.workers import WorkerPool, WorkerSettings

MAX_ANSWER_CHARS = 100_000


class RegexVerifier(Verifier):
    r"""Judges an answer by a Python regular expression, which must match it from end to end.

    The pattern is yours and is trusted; the text is the model's, and a pattern such as `(a+)+b`
    can take longer than the universe on 40 letters. Matching therefore runs in a process that is
    killed at its limit.

    Args:
        pattern: The pattern of every row; by default each row's reference is its pattern. Flags
            stand in the pattern, as `(?i)`.
        extraction: Where the answer stands; see `verifiers.extraction.find_answer`.
        allow_truncated: Judge a completion that was cut off at the length limit.
        cpu_limit_s: CPU seconds for one match; beyond it the completion gets `LIMIT`.
        concurrency: Matches that run at the same time in one verifier worker.
        poison_file: JSONL file to which matches that cost a worker process are appended.

    Raises:
        UserError: The pattern is none, or there is no such extraction policy.
    """

    name = "regex"
    version = 1

    def __init__(
        self,
        *,
        pattern: str | None = None,
        extraction: Policy = "boxed",
        allow_truncated: bool = False,
        cpu_limit_s: float = 2.0,
        concurrency: int = 1,
        poison_file: str | None = None,
    ) -> None:
        if pattern is not None and (why := _find_fault(pattern)):
            raise UserError(f"option 'pattern' of the verifier `regex`, {pattern!r}: {why}")
        self._pattern = pattern
        self._reader = ReplyReader(extraction, allow_truncated=allow_truncated)
        settings = WorkerSettings(
            target="verifiers.regex:matches", preload=("verifiers.regex",), cpu_limit_s=cpu_limit_s
        )
        self.concurrency = concurrency
        self._pool = WorkerPool(settings, size=concurrency, poison_file=poison_file)

    def prepare(self, problem: Problem) -> None:
        """Check that the row has a pattern.

        Raises:
            BadReference: It has none that can be compiled.
        """
        if self._pattern is None and (why := _find_fault(problem.reference)):
            raise BadReference(
                f"{problem.source}: the reference {problem.reference!r} is no regular expression "
                f"({why}); correct the row, or give one pattern for all rows as the option "
                "'pattern' of the verifier `regex`"
            )

    def verify(self, submission: Submission) -> Verdict:
        """Match one completion's answer."""
        return self._reader.judge(submission, self.label, self._rule)

    def close(self) -> None:
        """End the worker processes."""
        self._pool.close()

    def examples(self) -> Sequence[Example]:
        """A right and a wrong answer; none where one pattern of the user's counts for all rows."""
        if self._pattern is not None:
            return []
        pattern = r"\d{3}-[A-Z]+"
        return self._reader.make_examples(self.name, pattern, right="123-ABC", wrong="123-ABC9")

    def _rule(self, problem: Problem, answer: str) -> Ruling:
        pattern = problem.reference if self._pattern is None else self._pattern
        if why := _find_fault(pattern):
            return Ruling.bad_gold(why)
        if len(answer) > MAX_ANSWER_CHARS:
            return Ruling.too_long()
        outcome = self._pool.run(pattern, answer)
        if outcome.failure is not None:
            return Ruling.failed(outcome)
        return Ruling.right(Reason.ACCEPTED) if outcome.value else Ruling.wrong(Reason.REJECTED)


def matches(pattern: str, text: str) -> bool:
    """Run in a worker: whether the pattern matches the whole text."""
    return re.fullmatch(pattern, text) is not None


def _find_fault(pattern: object) -> str | None:
    """Why this is no pattern; None when it is one."""
    if not isinstance(pattern, str):
        return f"a {type(pattern).__name__} is no text"
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return str(error)
    return None
