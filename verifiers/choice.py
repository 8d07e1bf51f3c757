"""The verifier of multiple-choice problems: one letter, with or without the option's text."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from typing import Any

from verifiers.errors import BadReference, UserError
from verifiers.example import Example
from verifiers.extraction import Policy
from verifiers.maths.words import normalize_words
from verifiers.problem import Problem, Submission
from verifiers.protocol import Verifier
from verifiers.replies import ReplyReader, Ruling
from verifiers.verdict import Reason, Verdict

# A letter alone, or set off from what follows: never the first letter of a word.
_LETTER = re.compile(
    r"(?:\\[a-z]+\s*\{\s*)?(?:(?:[Oo]ption|[Cc]hoice|[Aa]nswer)\s*:?\s*)?(?:\(\s*(?:\\[a-z]+\s*\{\s*)?([A-Za-z])\s*\}?\s*\)|([A-Za-z])(?=$|\s*[.):}]|\s*$))\s*\}?(.*)",
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
        self._reader = ReplyReader(extraction, allow_truncated=allow_truncated)
        self._options_column = options_column
        self._letters = string.ascii_uppercase[:num_choices]

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
        return self._reader.judge(submission, self.label, self._rule)

    def examples(self) -> Sequence[Example]:
        """A right and a wrong answer."""
        return self._reader.make_examples(self.name, "B", right="(B)", wrong="A")

    def _rule(self, problem: Problem, answer: str) -> Ruling:
        options = self._options(problem)
        gold, chosen = self._gold(problem), choose(answer, options)
        if gold not in options:
            return Ruling.bad_gold(f"none of the choices {', '.join(options)}")
        if chosen is None:
            return Ruling.wrong(Reason.UNPARSED)
        return (
            Ruling.right(Reason.EQUAL_EXACT) if chosen == gold else Ruling.wrong(Reason.DIFFERENT)
        )

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
