"""The values a verifier receives: a problem, and one submission to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Message = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One row of a data set.

    Attributes:
        id: Unique within its data set.
        prompt: Plain text, or chat messages (`{"role": ..., "content": ...}`).
        verifier: Name of the verifier that judges the answers.
        reference: The right answer, in the form that verifier reads (text, number, tests, ...).
        source: Where the row came from, as `file:line` or `hub-id[split]:row`; for messages.
        columns: Every other column of the row, by name.

    Example:
        >>> Problem(
        ...     id="add-7", prompt="12+30=", verifier="math", reference="42", source="maths.jsonl:7"
        ... ).reference
        '42'
    """

    id: str
    prompt: str | tuple[Message, ...]
    verifier: str
    reference: Any
    source: str
    columns: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """One completion to be judged.

    Attributes:
        problem: What was asked.
        completion: The completion's text, special tokens removed; never the prompt's.
        truncated: True when the completion was cut off at a length limit.
    """

    problem: Problem
    completion: str
    truncated: bool = False
