"""One spelling for answers that say the same thing, so that votes for them can be counted."""

from __future__ import annotations

from verifiers.maths.answers import Quantity
from verifiers.maths.cleanup import clean
from verifiers.maths.exact import TooCostly, evaluate
from verifiers.maths.expressions import Unreadable
from verifiers.maths.reader import read_answer


def write_canonical(text: str) -> str:
    r"""An answer's structure as text: rational numbers by value, everything else by its form.

    Two answers with the same text are equal; equal answers can have different ones (`x+1` and
    `1+x`), since nothing here is simplified. What cannot be read is taken as it is written,
    cleaned.

    Example:
        >>> write_canonical(r"\dfrac{2}{4}") == write_canonical("0.5")
        True
    """
    try:
        answer = read_answer(text)
        if isinstance(answer, Quantity):
            value = evaluate(answer.expression)
            if value is not None:
                return f"{value} {answer.unit or ''}".strip()
        return repr(answer)
    except (Unreadable, TooCostly):
        return clean(text)
