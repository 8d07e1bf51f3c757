"""The verifier of multiple-choice problems: one letter, with or without the option's text."""

from __future__ import annotations

import re
import string
import time
from collections.abc import Sequence
from typing import Any

from verifiers.errors import BadReference, UserError
from verifiers.example import Example
from verifiers.extraction import Policy, check_policy
from verifiers.maths.words import normalize_words
from verifiers.problem import Problem, Submission
from verifiers.protocol import Verifier
from verifiers.replies import extract_reply, no_answer, write_reply
from verifiers.verdict import Reason, Status, Verdict

# A letter alone, or set off from what follows: never the first letter of a word.
_LETTER = re.compile(
    r"(?:\\[a-z]+\s*\{\s*)?(?:(?:[Oo]ption|[Cc]hoice|[Aa]nswer)\s*:?\s*)?(?:\(\s*([A-Za-z])\s*\)|([A-Za-z])(?=$|\s*[.):}]|\s*$))\s*\}?(.*)",
    re.DOTALL,
)
_OTHER_LETTER = re.compile(r"(?<![A-Za-z\\])(?:\(([A-Z])\)|([A-Z])(?=[.):,]|$|\s*$))")


class ChoiceVerifier(Verifier):
    """Judges a letter (`B`, `(b)`, `B. text`), or the text of one of the row's options.

    Args:
        extraction: Where the answer stands; see `verifiers.extraction.find_answer`.
        options_column: Column with the list of options (or a mapping from letter to option), if
            there is one.
        num_choices: How many letters there are, for rows without that column.
        allow_truncated: Judge a completion that was cut off at the length limit.

    Raises:
        UserError: There is no such extraction policy, or too many letters.
    """

    name = "choice"
    version = 1

    def __init__(
        self,
        *,
        extraction: Policy = "boxed",
        options_column: str = "choices",
        num_choices: int = 26,
        allow_truncated: bool = False,
    ) -> None:
        if not 2 <= num_choices <= 26:
            raise UserError(
                f"option 'num_choices' of the verifier `choice` is {num_choices}, not 2..26"
            )
        self._extraction: Policy = check_policy(extraction)
        self._options_column = options_column
        self._letters = string.ascii_uppercase[:num_choices]
        self._allow_truncated = allow_truncated

    def prepare(self, problem: Problem) -> None:
        """Check that the reference is a letter of the row's options.

        Raises:
            BadReference: It is not.
        """
        options = self._options(problem)
        if self._gold(problem) not in options:
            raise BadReference(
                f"{problem.source}: the reference {problem.reference!r} is none of the choices "
                f"{', '.join(options)}"
            )

    def verify(self, submission: Submission) -> Verdict:
        """Judge one completion."""
        started = time.perf_counter()
        label = f"{self.name}@{self.version}"
        found = extract_reply(submission, self._extraction, self._allow_truncated)
        if isinstance(found, Reason):
            return no_answer(found, label, started)
        options = self._options(submission.problem)
        gold = self._gold(submission.problem)
        chosen = choose(found.text, options)
        if gold not in options:
            status, reason, score = Status.BAD_GOLD, Reason.UNREADABLE_REFERENCE, None
        elif chosen is None:
            status, reason, score = Status.INCORRECT, Reason.UNPARSED, 0.0
        elif chosen == gold:
            status, reason, score = Status.CORRECT, Reason.EQUAL_EXACT, 1.0
        else:
            status, reason, score = Status.INCORRECT, Reason.DIFFERENT, 0.0
        return Verdict(
            status=status,
            score=score,
            reason=reason,
            verifier=label,
            extracted=found.text,
            seconds=time.perf_counter() - started,
        )

    def examples(self) -> Sequence[Example]:
        """A right and a wrong answer."""
        return [
            Example.of(self.name, "B", write_reply("(B)", self._extraction), Status.CORRECT),
            Example.of(self.name, "B", write_reply("A", self._extraction), Status.INCORRECT),
        ]

    def _options(self, problem: Problem) -> dict[str, str]:
        """Text of each option, by letter."""
        column: Any = problem.columns.get(self._options_column)
        if isinstance(column, dict):
            return {str(key).upper(): str(value) for key, value in column.items()}
        if isinstance(column, list | tuple):
            return dict(zip(string.ascii_uppercase, map(str, column), strict=False))
        return dict.fromkeys(self._letters, "")

    def _gold(self, problem: Problem) -> str | None:
        """The reference as a letter; it may also be an index into the options, or one's text."""
        reference = problem.reference
        if isinstance(reference, int) and not isinstance(reference, bool):
            return string.ascii_uppercase[reference] if 0 <= reference < 26 else None
        return choose(str(reference), self._options(problem))


def choose(text: str, options: dict[str, str]) -> str | None:
    """The letter that an answer chooses; None when it names none, or several.

    Args:
        text: The answer.
        options: Text of each option by its letter; an empty text is not compared.

    Example:
        >>> choose("(B) five", {"A": "", "B": ""})
        'B'
    """
    text = text.strip().strip("$*`").strip()
    match = _LETTER.fullmatch(text)
    letter = (match[1] or match[2]).upper() if match else None
    if match and letter in options:
        others = {a or b for a, b in _OTHER_LETTER.findall(match[3])} & options.keys()
        return letter if others <= {letter} else None
    words = normalize_words(text)
    named = [key for key, value in options.items() if value and normalize_words(value) == words]
    return named[0] if len(named) == 1 else None
