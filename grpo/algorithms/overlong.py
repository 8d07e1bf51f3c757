"""Soft punishment of completions that come near the length limit (DAPO, arXiv 2503.14476, eq. 13).

Without it, a limit that is reached suddenly punishes a long and right answer as a wrong one.
"""

from __future__ import annotations


def compute_overlong_punishment(
    length: int, *, max_completion_length: int, buffer_length: int
) -> float:
    """Compute the punishment of one completion, between -1 and 0.

    Args:
        length: The completion's tokens.
        max_completion_length: Where it is cut off, and punished with -1.
        buffer_length: The last so many tokens before that are punished the more, the longer.

    Example:
        >>> compute_overlong_punishment(18, max_completion_length=20, buffer_length=5)
        -0.6
    """
    free = max_completion_length - buffer_length
    return max(-1.0, min(0.0, (free - length) / buffer_length))
