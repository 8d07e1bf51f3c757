"""What happened to a worker, and what was done about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Stage = Literal["rollout", "verification", "learner", "checkpoint", "record"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """Something was lost; a run goes on, and says so at its end.

    Attributes:
        stage: Where.
        worker: Which process or place.
        cause: What happened, in one sentence, with the last that was known of the worker.
        action: What was done about it: `restarted`, `given up`, ...
        problem_ids: Whose work was in hand.
        num_redone: Items that are done again because of it.
        num_lost: Items that are given up, and counted as not verified.
        stack: Where the worker stood, where it could still be asked.

    Example:
        >>> Incident(stage="rollout", worker="rollout engine 0", cause="It died.",
        ...          action="restarted", problem_ids=("p1",), num_redone=8).num_redone
        8
    """

    stage: Stage
    worker: str
    cause: str
    action: str
    problem_ids: tuple[str, ...] = ()
    num_redone: int = 0
    num_lost: int = 0
    stack: str | None = None


NoteIncident = Callable[[Incident], None]


def ignore_incident(_incident: Incident) -> None:
    """For callers that keep no record."""
