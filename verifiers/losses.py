"""What becomes of the work of an actor that died or hangs."""

from __future__ import annotations

import time

from verifiers.incident import Incident
from verifiers.station import Lane, Station, Work
from verifiers.verdict import Reason, Status, Verdict

MAX_TRIES = 3
MAX_STALLS = 2


class Stalled(Exception):
    """An actor answers nothing."""

    def __init__(self, station: Station, lane: Lane) -> None:
        problems = ", ".join(
            dict.fromkeys(w.problem.id for batch in lane.in_flight.values() for w in batch)
        )
        super().__init__(
            f"The {station.name} has answered nothing for {time.monotonic() - lane.since:.0f} s;"
            f" it has problems {problems}."
        )
        self.lane = lane


def sort_lost(
    batches: list[list[Work]], *, num_suspects: int, stalled: bool
) -> tuple[list[Work], list[Work]]:
    """Count a try for what the actor was at; what is tried again, and what is given up.

    Args:
        batches: Calls of a lane without an answer, oldest first.
        num_suspects: How many of the oldest the actor may have been at.
        stalled: Whether it hung, rather than died.
    """
    suspects = [work for batch in batches[:num_suspects] for work in batch]
    for work in suspects:
        work.tries += 1
    # What hangs again by itself is known; what dies may have been another's victim.
    limit = MAX_STALLS if stalled else MAX_TRIES
    given_up = [work for work in suspects if work.tries >= limit]
    again = [work for work in suspects if work.tries < limit]
    return again + [work for batch in batches[num_suspects:] for work in batch], given_up


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
