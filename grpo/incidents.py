"""What was lost in a run and what was done about it: kept, said at once, and summed at the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from verifiers.incident import Incident

_SHOWN_PROBLEMS = 3


class IncidentLog:
    """Keeps a run's incidents. Any thread may note one.

    Args:
        write: Keeps one on disk.
        say: Prints a line.
    """

    def __init__(
        self, *, write: Callable[[Mapping[str, Any]], None], say: Callable[[str], None]
    ) -> None:
        self._write = write
        self._say = say
        self._lock = threading.Lock()
        self._incidents: list[Incident] = []

    @property
    def incidents(self) -> Sequence[Incident]:
        """All of them, in the order in which they were noted."""
        with self._lock:
            return tuple(self._incidents)

    def note(self, incident: Incident) -> None:
        """Keep an incident and say it."""
        with self._lock:
            self._incidents.append(incident)
            self._say(describe(incident))
            try:
                self._write({"time": time.time(), **asdict(incident)})
            except OSError as error:
                # A full disk is an incident itself; the closing table has all of them.
                self._say(f"! record: the incident is not on disk: {error}")


def describe(incident: Incident) -> str:
    """An incident as a line for a person."""
    parts = [f"! {incident.stage}: {incident.cause} -> {incident.action}"]
    if incident.num_redone:
        parts.append(f"{incident.num_redone} done again")
    if incident.num_lost:
        parts.append(f"{incident.num_lost} lost")
    if incident.problem_ids:
        shown = ", ".join(incident.problem_ids[:_SHOWN_PROBLEMS])
        more = len(incident.problem_ids) - _SHOWN_PROBLEMS
        parts.append(f"problems {shown}" + (f" and {more} more" if more > 0 else ""))
    return "; ".join(parts)


def describe_not_verified(counts: Mapping[str, int]) -> str:
    """The completions of a run that taught nothing because nobody could judge them.

    Args:
        counts: By reason.
    """
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(counts.items()))
    return f"Not verified, and so in no update: {sum(counts.values())} completions ({reasons})"


def make_incident_table(incidents: Sequence[Incident]) -> Table:
    """What was lost and redone, by worker and by what was done about it."""
    table = Table(title="What was lost and redone", title_justify="left")
    for column in ("stage", "worker", "action"):
        table.add_column(column)
    for column in ("times", "redone", "lost"):
        table.add_column(column, justify="right")
    rows: dict[tuple[str, str, str], list[int]] = {}
    for incident in incidents:
        row = rows.setdefault((incident.stage, incident.worker, incident.action), [0, 0, 0])
        for place, value in enumerate((1, incident.num_redone, incident.num_lost)):
            row[place] += value
    for names, numbers in rows.items():
        table.add_row(*names, *map(str, numbers))
    return table
