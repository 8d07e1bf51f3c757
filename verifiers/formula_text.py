"""Whether a text is a formula and nothing else, so that a library may evaluate it."""

from __future__ import annotations

import re

# Names longer than a variable's that a formula may have; every other one could be a function of
# Python's.
_NAMES = frozenset(
    {"sqrt", "sin", "cos", "tan", "exp", "log", "ln", "abs", "Abs", "pi", "oo", "and", "or", "not"}
)
_TOKEN = re.compile(r"\s*(?:([A-Za-z]\w*)|\d+(?:\.\d+)?|[-+*/^()=<>,|&~%\[\]{}])")
_VARIABLE = re.compile(r"[A-Za-z]\d?\Z")


def is_formula(text: str) -> bool:
    """Tell whether a text has only numbers, operators, brackets, variables and known functions.

    Example:
        >>> is_formula("3*x + sqrt(2)"), is_formula("__import__('os')"), is_formula("x.real")
        (True, False, False)
    """
    position, text = 0, text.rstrip()
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            return False
        name = token[1]
        if name and name not in _NAMES and not _VARIABLE.match(name):
            return False
        position = token.end()
    return True
