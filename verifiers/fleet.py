"""The Ray actors that reach verdicts: bounded work in flight, and nothing lost with an actor."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from verifiers.assignment import Assignment
from verifiers.incident import Incident, NoteIncident, ignore_incident
from verifiers.losses import Stalled, describe_loss, not_verified, sort_lost
from verifiers.problem import Submission
from verifiers.registry import find_placement, plan_verifier
from verifiers.station import FleetError, Lane, Station, Work
from verifiers.verdict import Reason, Verdict

MAX_FAILED_STARTS = 3
CLOSE_LIMIT_S = 10.0
LOST_CALL_LIMIT_S = 5.0
_LOOK_EVERY_S = 0.2


class VerifierFleet:
    """Verifies submissions on the actors of the Ray instance that `ray.init` connected to.

    `num_workers` worker actors each hold every verifier that runs in a worker, and judge at the
    same time what each one's `concurrency` allows; each verifier that owns machine-wide resources
    (`placement = "node"`, such as `code`) has one actor on every node.
    Submissions to one problem go to one worker, whose memory of answers they share; for a verifier
    that judges whole groups they are held back until the group is whole, and go as one piece. When
    an actor dies, it is replaced and its work is tried again; after three tries its submissions get
    `ERROR` with reason `worker_died`, never a score. One that hangs is killed, and work that hangs
    once more by itself gets `ERROR` with reason `stalled`.

    Args:
        specs: Options of each verifier, by its name.
        num_workers: Worker actors.
        max_in_flight: Submissions sent out that have no verdict; `submit` waits at this number.
        node_threads: Submissions that the actor of a node judges at the same time.
        stall_timeout_s: Longest time in which an actor with work may answer nothing.
        note: Told of actors that died or hung.

    Raises:
        UserError: `specs` names a verifier that does not exist.

    Example:
        >>> fleet = VerifierFleet(  # doctest: +SKIP
        ...     specs={"math": {}}, num_workers=1, max_in_flight=64
        ... )
        >>> fleet.start()  # doctest: +SKIP
        >>> fleet.submit("a", submission)  # doctest: +SKIP
        >>> fleet.finished(timeout_s=10.0)  # doctest: +SKIP
        [('a', Verdict(status=<Status.CORRECT: 'correct'>, ...))]
    """

    def __init__(
        self,
        *,
        specs: Mapping[str, Mapping[str, Any]],
        num_workers: int,
        max_in_flight: int,
        node_threads: int = 4,
        stall_timeout_s: float = 600.0,
        note: NoteIncident = ignore_incident,
    ) -> None:
        assert num_workers > 0
        assert max_in_flight > 0
        self._max_in_flight = max_in_flight
        placements = {name: find_placement(name) for name in specs}
        in_workers = {n: dict(o) for n, o in specs.items() if placements[n] == "worker"}
        self._stall_timeout_s = stall_timeout_s
        self._note = note
        plans = {name: plan_verifier(name, options) for name, options in in_workers.items()}
        self._judge_groups = {name for name, plan in plans.items() if plan.scope == "group"}
        self._incomplete: dict[Hashable, list[tuple[Hashable, Submission]]] = {}
        self._assignment = Assignment(
            in_workers=in_workers,
            concurrency={name: plan.concurrency for name, plan in plans.items()},
            num_workers=num_workers,
            on_nodes={n: dict(o) for n, o in specs.items() if placements[n] == "node"},
            node_threads=node_threads,
        )
        self._finished: deque[tuple[Hashable, Verdict]] = deque()
        self._unanswered = 0

    @property
    def pending(self) -> int:
        """Submissions whose verdict `finished` has not handed out yet."""
        held_back = sum(map(len, self._incomplete.values()))
        return held_back + self._unanswered + len(self._finished)

    def start(self) -> None:
        """Create the actors without waiting for them."""
        self._assignment.open_nodes(_alive_nodes())
        for station in self._assignment.stations:
            station.start()

    def wait_ready(self, timeout_s: float = 120.0) -> None:
        """Wait until every actor has judged its verifiers' known answers as it should.

        A node that lacks what a verifier needs, such as a Docker engine, is left out and noted.

        Raises:
            FleetError: One did not, cannot start, or is not ready in time, or no node has what a
                verifier needs.
        """
        give_up = time.monotonic() + timeout_s
        for station in self._assignment.stations:
            obstacle = station.await_checks(give_up)
            if obstacle is not None:
                self._leave_out(station, obstacle)

    def submit(
        self,
        key: Hashable,
        submission: Submission,
        *,
        group: Hashable = None,
        group_size: int = 1,
        on_wait: Callable[[], None] = lambda: None,
    ) -> None:
        """Hand in one submission; waits while `max_in_flight` others have no verdict.

        Args:
            key: Comes back with the verdict.
            submission: What to judge.
            group: Names the group that it belongs to, for a verifier that judges whole groups.
            group_size: Members of that group; its verdicts come when as many are handed in.
            on_wait: Called several times a second while there is no room; may raise.

        Raises:
            FleetError: Actors die again and again before they can work.
        """
        members = [(key, submission)]
        if submission.problem.verifier in self._judge_groups and group_size > 1:
            members = self._incomplete.setdefault(group, [])
            members.append((key, submission))
            if len(members) < group_size:
                return
            del self._incomplete[group]
        while self._unanswered >= self._max_in_flight:
            on_wait()
            self._pump(timeout_s=_LOOK_EVERY_S)
        keys, submissions = zip(*members, strict=True)
        self._unanswered += len(members)
        self._assignment.give(Work(keys, submissions))

    def finished(self, timeout_s: float) -> list[tuple[Hashable, Verdict]]:
        """The verdicts reached since the last call, in the order they were reached.

        Waits for the first one at most `timeout_s`; an empty list means that none came.

        Raises:
            FleetError: Actors die again and again before they can work.
        """
        give_up = time.monotonic() + timeout_s
        self._pump(timeout_s=0.0 if self._finished else timeout_s)
        while not self._finished and self._unanswered and time.monotonic() < give_up:
            self._pump(timeout_s=give_up - time.monotonic())
        results = list(self._finished)
        self._finished.clear()
        return results

    def close(self) -> None:
        """End the actors and everything they started; verdicts not handed out are lost."""
        stations = [station for station in self._assignment.stations if station.handle is not None]
        calls = [station.handle.close.remote() for station in stations]
        if calls:
            ray.wait(calls, num_returns=len(calls), timeout=CLOSE_LIMIT_S)
        for station in stations:
            ray.kill(station.handle)
            station.handle = None
            for lane in station.lanes.values():
                lane.in_flight.clear()
                lane.outbox.clear()
        self._incomplete.clear()
        self._finished.clear()
        self._unanswered = 0

    def _answer(self, station: Station, work: Work, verdicts: list[Verdict]) -> None:
        self._assignment.release(station, work)
        self._unanswered -= len(work.submissions)
        self._finished.extend(zip(work.keys, verdicts, strict=True))

    def _pump(self, timeout_s: float) -> None:
        """Take in what the actors have answered; wait for the first answer at most `timeout_s`."""
        calls = {
            call: (station, lane)
            for station in self._assignment.stations
            for lane in station.lanes.values()
            for call in lane.in_flight
        }
        if not calls:
            return
        answered, _ = ray.wait(list(calls), num_returns=1, timeout=timeout_s, fetch_local=True)
        more, _ = ray.wait(list(calls), num_returns=len(calls), timeout=0, fetch_local=True)
        for call in dict.fromkeys([*answered, *more]):
            self._receive(*calls[call], call)
        for station in self._assignment.stations:
            if (lane := station.find_stalled(self._stall_timeout_s)) is not None:
                self._replace(station, Stalled(station, lane))
            station.send()

    def _receive(self, station: Station, lane: Lane, call: ray.ObjectRef) -> None:
        if call not in lane.in_flight:  # dealt with when its actor's death was noticed
            return
        try:
            answers = station.receive(lane, call)
        except RayTaskError as error:
            answers = [
                not_verified(work, Reason.VERIFIER_RAISED, str(error))
                for work in lane.in_flight[call]
            ]
        except RayError as error:
            self._replace(station, error)
            return
        for work, verdicts in zip(lane.in_flight.pop(call), answers, strict=True):
            self._answer(station, work, verdicts)

    def _replace(self, station: Station, error: RayError | Stalled) -> None:
        """Start a dead actor anew and try again what it had not answered."""
        stalled = isinstance(error, Stalled)
        stack = station.stop_stalled() if stalled else None
        if stalled or station.has_started():
            station.failed_starts = 0
        else:
            station.failed_starts += 1
            if station.failed_starts >= MAX_FAILED_STARTS:
                raise FleetError(f"a verifier actor cannot start: {error}") from error
        again: list[Work] = []
        given_up: list[Work] = []
        for lane in station.lanes.values():
            # Calls run in the order they were sent: only the foremost can have caused the loss.
            innocent = stalled and lane is not error.lane
            retried, dropped = sort_lost(
                self._collect_lost(station, lane),
                num_suspects=0 if innocent else lane.concurrency,
                stalled=stalled,
            )
            lane.outbox.extendleft(reversed(retried))
            again += retried
            given_up += dropped
        for work in given_up:
            detail = f"{work.tries} verifier actors failed with this submission, the last: {error}"
            reason = Reason.STALLED if stalled else Reason.WORKER_DIED
            self._answer(station, work, not_verified(work, reason, detail))
        self._note(describe_loss(station, error, again=again, given_up=given_up, stack=stack))
        station.vitals = None
        # One that is merely out of reach must not come back beside its successor.
        ray.kill(station.handle)
        if station.node_id is not None and station.node_id not in _alive_nodes():
            self._move_away(station)
            return
        station.start()
        station.send()

    def _collect_lost(self, station: Station, lane: Lane) -> list[list[Work]]:
        """Take in the answers that did come; the batches without one, oldest first."""
        lost = []
        for call, batch in list(lane.in_flight.items()):
            del lane.in_flight[call]
            try:
                answers = station.receive(lane, call, LOST_CALL_LIMIT_S)
            except RayError:
                lost.append(batch)
                continue
            for work, verdicts in zip(batch, answers, strict=True):
                self._answer(station, work, verdicts)
        return lost

    def _leave_out(self, station: Station, obstacle: str) -> None:
        """Go on without a node that cannot judge."""
        for lane in station.lanes.values():
            for batch in reversed(lane.in_flight.values()):
                lane.outbox.extendleft(reversed(batch))
            lane.in_flight.clear()
        ray.kill(station.handle)
        self._note(
            Incident(stage="verification", worker=station.name, cause=obstacle, action="left out")
        )
        self._move_away(station, why=obstacle)

    def _move_away(self, station: Station, why: str = "the last one is lost") -> None:
        """Give the work of a node that cannot do it to the other nodes."""
        if orphaned := self._assignment.drop(station):
            raise FleetError(f"no node is left for the verifier {orphaned[0]!r}: {why}")
        for work in [work for lane in station.lanes.values() for work in lane.outbox]:
            self._assignment.release(station, work)
            self._assignment.give(work)


def _alive_nodes() -> list[str]:
    return [node["NodeID"] for node in ray.nodes() if node["Alive"]]
