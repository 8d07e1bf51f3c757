"""What every verifier is to the code around it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

from verifiers.example import Example
from verifiers.problem import Problem, Submission
from verifiers.verdict import Verdict

Placement = Literal["worker", "node"]
Scope = Literal["submission", "group"]


@runtime_checkable
class Verifier(Protocol):
    """Judges submissions. A class that derives from this one writes `prepare` and `verify`.

    Attributes:
        name: How a problem names it.
        version: Of its rules; a change in any verdict raises it.
        placement: `worker`: a copy in every verifier worker. `node`: one instance a machine, called
            from several threads at once, for a verifier that owns machine-wide resources such as
            containers.
        scope: `submission`: a verdict depends on one completion. `group`: it depends on all
            completions of the problem, which then come to `verify_batch` together, as soon as the
            last of them is there.
        concurrency: How many threads of one worker may call it at the same time; without this
            attribute, or with 1, calls come one after the other.
    """

    name: str
    version: int
    placement: Placement = "worker"
    scope: Scope = "submission"
    concurrency: int = 1

    @property
    def label(self) -> str:
        """Name and rule-set version, as verdicts carry it: `math@1`."""
        return f"{self.name}@{self.version}"

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

    def verify_batch(self, submissions: Sequence[Submission]) -> list[Verdict]:
        """Verdicts in the order of the submissions."""
        return [self.verify(submission) for submission in submissions]

    async def averify(self, submission: Submission) -> Verdict:
        """As `verify`, while the event loop goes on.

        When it is cancelled, the submission being judged ends at its own limits, with its worker
        intact.
        """
        return await asyncio.to_thread(self.verify, submission)

    def examples(self) -> Sequence[Example]:
        """Answers known to be right and wrong; they must get their status on any path."""
        return ()

    def close(self) -> None:
        """Release processes and containers; the verifier is not used afterwards."""
