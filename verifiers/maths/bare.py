r"""How a reference is read where it is passed bare, as many trainers pass it to math-verify.

Without `\boxed{}` or dollar signs `2\sqrt{3}` counts as 2 there. Nothing here judges that way; a
data set with such references gives other rewards elsewhere.
"""

from __future__ import annotations

import logging
import re
from typing import Literal

Reading = Literal["same", "other", "unread"]

PRELOAD = ("math_verify", "sympy", "latex2sympy2_extended")
_PLAIN_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def is_plain(reference: str) -> bool:
    """Whether every reader takes the reference for the same number."""
    return _PLAIN_NUMBER.fullmatch(reference.strip()) is not None


def read_bare(reference: str) -> Reading:
    """Compare the bare reading with the boxed one; runs in a worker, which has its own limits."""
    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns of a run without alarms
    bare = parse(reference, parsing_timeout=None)  # type: ignore[arg-type]  # None is "no alarm"
    boxed = parse(f"\\boxed{{{reference}}}", parsing_timeout=None)  # type: ignore[arg-type]
    if not bare or not boxed:
        return "unread"
    return "same" if verify(boxed, bare, timeout_seconds=None) else "other"
