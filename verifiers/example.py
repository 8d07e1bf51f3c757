"""A submission whose verdict is known: part of the self-check at start-up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from verifiers.problem import Problem, Submission
from verifiers.verdict import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A submission, and the status that it must get."""

    submission: Submission
    status: Status

    @classmethod
    def of(cls, verifier: str, reference: Any, completion: str, status: Status) -> Example:
        """An example that needs no more than a reference and a completion."""
        problem = Problem(
            id=f"self-check {verifier}",
            prompt="",
            verifier=verifier,
            reference=reference,
            source="self-check",
        )
        return cls(submission=Submission(problem=problem, completion=completion), status=status)
