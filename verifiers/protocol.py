"""What every verifier is to the code around it."""

from __future__ import annotations

from typing import Literal, Protocol, runtime_checkable

from verifiers.problem import Problem, Submission
from verifiers.verdict import Verdict

Placement = Literal["worker", "node"]


@runtime_checkable
class Verifier(Protocol):
    """Judges submissions.

    Attributes:
        name: How a problem names it.
        version: Of its rules; a change in any verdict raises it.
        placement: `worker`: a copy in every verifier worker. `node`: one instance a machine, called
            from several threads at once, for a verifier that owns machine-wide resources such as
            containers.
    """

    name: str
    version: int
    placement: Placement

    def prepare(self, problem: Problem) -> None:
        """Check that this problem can be judged; called for every row before a model loads.

        Raises:
            BadReference: The reference cannot be read, or a column that the verifier needs is
            missing.
        """
        ...

    def verify(self, submission: Submission) -> Verdict:
        """Judge one submission. Never raises for anything that a model wrote."""
        ...

    def close(self) -> None:
        """Release processes and containers; the verifier is not used afterwards."""
        ...
