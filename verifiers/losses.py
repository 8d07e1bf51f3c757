"""What becomes of the work of an actor that died or hangs."""

from __future__ import annotations

import time

from verifiers.incident import Incident
from verifiers.station import Station, Work
from verifiers.verdict import Reason, Status, Verdict

MAX_TRIES = 3
MAX_STALLS = 2


class Stalled(Exception):
    """An actor answers nothing."""

    def __init__(self, station: Station) -> None:
        problems = ", ".join(
            dict.fromkeys(w.problem.id for batch in station.in_flight.values() for w in batch)
        )
        super().__init__(
            f"The {station.name} has answered nothing for {time.monotonic() - station.since:.0f} s;"
            f" it has problems {problems}."
        )


def sort_lost(
    batches: list[list[Work]], *, num_threads: int, stalled: bool
) -> tuple[list[Work], list[Work]]:
    """Count a try for what the actor was at; what is tried again, and what is given up.

    Args:
        batches: Calls without an answer, oldest first.
        num_threads: Calls that the actor ran at the same time.
        stalled: Whether it hung, rather than died.
    """
    # Calls run in the order they were sent: only the foremost can have caused the death.
    for work in (work for batch in batches[:num_threads] for work in batch):
        work.tries += 1
    # What hangs again by itself is known; what dies may have been another's victim.
    limit = MAX_STALLS if stalled else MAX_TRIES
    lost = [work for batch in batches for work in batch]
    again = [work for work in lost if work.tries < limit]
    return again, [work for work in lost if work.tries >= limit]


def describe_loss(
    station: Station,
    error: Exception,
    *,
    again: list[Work],
    given_up: list[Work],
    stack: str | None,
) -> Incident:
    """The incident of an actor that was lost."""
    last = f" Last known: {station.vitals}." if station.vitals else ""
    return Incident(
        stage="verification",
        worker=station.name,
        cause=f"{error}{last}",
        action="restarted",
        problem_ids=tuple(dict.fromkeys(w.problem.id for w in (*given_up, *again))),
        num_redone=sum(len(work.submissions) for work in again),
        num_lost=sum(len(work.submissions) for work in given_up),
        stack=stack,
    )


def not_verified(work: Work, reason: Reason, detail: str) -> list[Verdict]:
    """What stands for the verdicts on work that no actor could judge."""
    verdict = Verdict(
        status=Status.ERROR, score=None, reason=reason, verifier="fleet", detail=detail
    )
    return [verdict] * len(work.submissions)
