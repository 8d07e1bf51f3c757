"""Which actor of a fleet judges which work."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from verifiers.parcels import NUM_KEPT, StoredProblem
from verifiers.problem import Problem
from verifiers.station import Station, Work


class Assignment:
    """The stations of a fleet, and what each of them has.

    Submissions to one problem go to one worker, whose memory of answers they share; a verifier that
    has a station on every node gives work to the least busy of them.

    Args:
        in_workers: Options of the verifiers that every worker holds, by name.
        concurrency: What each of those judges at the same time in one worker.
        num_workers: Workers.
        on_nodes: Options of the verifiers that have a station on every node.
        node_threads: Submissions that such a station judges at the same time.
    """

    def __init__(
        self,
        *,
        in_workers: Mapping[str, Mapping[str, Any]],
        concurrency: Mapping[str, int],
        num_workers: int,
        on_nodes: Mapping[str, Mapping[str, Any]],
        node_threads: int,
    ) -> None:
        self._on_nodes = on_nodes
        self._node_threads = node_threads
        self._workers = [
            Station(in_workers, concurrency) for _ in range(num_workers if in_workers else 0)
        ]
        self._nodes: dict[str, list[Station]] = {}
        # The worker that has a problem, and in how many pieces.
        self._home: dict[str, tuple[Station, int]] = {}
        # Problems of the verifiers on nodes, whose whole suite of tests goes there once.
        self._stored: OrderedDict[str, tuple[Problem, StoredProblem]] = OrderedDict()

    @property
    def stations(self) -> list[Station]:
        """All of them."""
        return [*self._workers, *(s for stations in self._nodes.values() for s in stations)]

    def open_nodes(self, node_ids: Sequence[str]) -> None:
        """Make the stations of the nodes; they are not started."""
        for name, options in self._on_nodes.items():
            self._nodes[name] = [
                Station({name: options}, {name: self._node_threads}, node_id)
                for node_id in node_ids
            ]

    def give(self, work: Work) -> None:
        """Find a station for the work, which is sent when there is room."""
        problem = work.problem
        if problem.verifier in self._on_nodes:
            station = min(self._nodes[problem.verifier], key=lambda s: s.load)
            work.stored = self._store(problem)
        else:
            home, waiting = self._home.get(problem.id, (None, 0))
            station = home or min(self._workers, key=lambda s: s.load)
            self._home[problem.id] = station, waiting + 1
        station.load += len(work.submissions)
        station.lanes[problem.verifier].outbox.append(work)
        station.send()

    def _store(self, problem: Problem) -> StoredProblem:
        known = self._stored.get(problem.id)
        if known is None or known[0] is not problem:
            known = self._stored[problem.id] = problem, StoredProblem.store(problem)
        self._stored.move_to_end(problem.id)
        while len(self._stored) > NUM_KEPT:
            self._stored.popitem(last=False)
        return known[1]

    def release(self, station: Station, work: Work) -> None:
        """Forget that this station has the work, and the problem's home with its last piece."""
        station.load -= len(work.submissions)
        problem = work.problem
        if problem.id in self._home and problem.verifier not in self._on_nodes:
            home, waiting = self._home[problem.id]
            if waiting == 1:
                del self._home[problem.id]
            else:
                self._home[problem.id] = home, waiting - 1

    def drop(self, station: Station) -> list[str]:
        """Forget a station whose node is gone; the verifiers that have none left."""
        for name in station.specs:
            self._nodes[name].remove(station)
        return [name for name in station.specs if not self._nodes[name]]
