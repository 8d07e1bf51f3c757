"""When two pieces of text say the same."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

SYNONYMS: Mapping[str, str] = {
    "does not exist": "dne",
    "doesnt exist": "dne",
    "no solutions": "no solution",
    "none exist": "none",
    "infinite": "infinity",
    "infinitely many": "infinity",
    "infty": "infinity",
    "emptyset": "no solution",
    "varnothing": "no solution",
    "empty set": "no solution",
}
_COMMAND = re.compile(
    r"\\(?:text|textbf|textit|textrm|mathrm|mbox|mathbf|operatorname)(?![a-zA-Z])\s*"
)
_HYPHEN = re.compile(r"(?<=\w)-(?=\w)")  # a minus sign in front stays
_PUNCTUATION = re.compile(r"[{}$.,;:!?'\"\\()\[\]]")


def normalize_words(text: str) -> str:
    r"""Text without case, punctuation, articles, text commands and surplus space.

    Example:
        >>> normalize_words(r"\text{The Evelyn.}")
        'evelyn'
    """
    text = unicodedata.normalize("NFKC", _COMMAND.sub(" ", text)).casefold()
    words = _PUNCTUATION.sub(" ", _HYPHEN.sub(" ", text.replace("'", ""))).split()
    joined = " ".join(word for word in words if word not in ("a", "an", "the")) or " ".join(words)
    return SYNONYMS.get(joined, joined)
