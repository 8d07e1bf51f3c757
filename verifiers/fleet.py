"""The Ray actors that reach verdicts: bounded work in flight, and no item lost with an actor."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from verifiers.judge import Judge
from verifiers.problem import Submission
from verifiers.registry import find_placement
from verifiers.verdict import Reason, Status, Verdict

BATCH_SIZE = 16
MAX_TRIES = 3
MAX_FAILED_STARTS = 3
CLOSE_LIMIT_S = 10.0
LOST_CALL_LIMIT_S = 5.0
ACTOR_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "CUDA_VISIBLE_DEVICES": "",
}


class FleetError(RuntimeError):
    """The fleet cannot reach verdicts at all, or reaches wrong ones on known answers."""


@dataclass(slots=True)
class _Item:
    key: Hashable
    submission: Submission
    tries: int = 0


class _JudgeActor:
    """A judge in an actor's process."""

    def __init__(self, specs: Mapping[str, Mapping[str, Any]], directory: str) -> None:
        if Path(directory).is_dir():  # plug-in paths are relative to where the command runs
            os.chdir(directory)
        self._judge = Judge(specs)

    def judge(self, submissions: list[Submission]) -> list[Verdict]:
        return self._judge.judge_batch(submissions)

    def self_check(self) -> list[str]:
        return self._judge.self_check()

    def close(self) -> None:
        self._judge.close()


@dataclass(slots=True)
class _Station:
    """One actor, with the work that waits for it and the calls that it has yet to answer."""

    specs: Mapping[str, Mapping[str, Any]]
    num_threads: int
    node_id: str | None = None
    handle: Any = None
    check: Any = None
    failed_starts: int = 0
    outbox: deque[_Item] = field(default_factory=deque)
    in_flight: dict[ray.ObjectRef, list[_Item]] = field(default_factory=dict)
    load: int = 0

    @property
    def batch_size(self) -> int:
        """Items in a call: several where they are taken in turn, one where threads share them."""
        return BATCH_SIZE if self.num_threads == 1 else 1

    def start(self) -> None:
        """Create the actor, without waiting for it."""
        options: dict[str, Any] = {
            "num_cpus": 0,
            "max_concurrency": self.num_threads,
            "runtime_env": {"env_vars": ACTOR_ENVIRONMENT},
        }
        if self.node_id is not None:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(
                self.node_id, soft=False
            )
        actor_class = ray.remote(**options)(_JudgeActor)
        self.handle = actor_class.remote(self.specs, str(Path.cwd()))
        self.check = self.handle.self_check.remote()

    def has_started(self) -> bool:
        """Whether the present actor ever answered."""
        answered, _ = ray.wait([self.check], timeout=0)
        try:
            return bool(answered) and ray.get(self.check) is not None
        except RayError:
            return False

    def send(self) -> None:
        """Send full batches at once, and the remainder when the actor has nothing else to do."""
        while self.outbox and (len(self.outbox) >= self.batch_size or not self.in_flight):
            batch = [self.outbox.popleft()]
            # An item whose call died goes alone, so that it takes no others with it again.
            while self.outbox and len(batch) < self.batch_size:
                if batch[0].tries or self.outbox[0].tries:
                    break
                batch.append(self.outbox.popleft())
            call = self.handle.judge.remote([item.submission for item in batch])
            self.in_flight[call] = batch


class VerifierFleet:
    """Verifies submissions on the actors of the Ray instance that `ray.init` connected to.

    `num_workers` worker actors each hold every verifier that runs in a worker; each verifier that
    owns machine-wide resources (`placement = "node"`, such as `code`) has one actor on every node.
    Submissions to one problem go to one worker, whose memory of answers they share. When an actor
    dies, it is replaced and its items are tried again; after three tries an item gets `ERROR` with
    reason `worker_died`, never a score.

    Args:
        specs: Options of each verifier, by its name.
        num_workers: Worker actors.
        max_in_flight: Submissions without a verdict; `submit` waits at this number.
        node_threads: Submissions that the actor of a node judges at the same time.

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
    ) -> None:
        assert num_workers > 0
        assert max_in_flight > 0
        self._max_in_flight = max_in_flight
        placements = {name: find_placement(name) for name in specs}
        in_workers = {n: dict(o) for n, o in specs.items() if placements[n] == "worker"}
        self._node_specs = {n: dict(o) for n, o in specs.items() if placements[n] == "node"}
        self._node_threads = node_threads
        self._workers = [_Station(in_workers, 1) for _ in range(num_workers if in_workers else 0)]
        self._nodes: dict[str, list[_Station]] = {}
        self._home: dict[str, tuple[_Station, int]] = {}
        self._finished: deque[tuple[Hashable, Verdict]] = deque()
        self._unanswered = 0

    @property
    def pending(self) -> int:
        """Submissions whose verdict `finished` has not handed out yet."""
        return self._unanswered + len(self._finished)

    def start(self) -> None:
        """Create the actors without waiting for them."""
        node_ids = _alive_nodes()
        for name, options in self._node_specs.items():
            self._nodes[name] = [
                _Station({name: options}, self._node_threads, node_id) for node_id in node_ids
            ]
        for station in self._stations():
            station.start()

    def wait_ready(self, timeout_s: float = 120.0) -> None:
        """Wait until every actor has judged its verifiers' known answers as it should.

        Raises:
            FleetError: One did not, cannot start, or is not ready in time.
        """
        give_up = time.monotonic() + timeout_s
        for station in self._stations():
            self._await_check(station, give_up)

    def submit(self, key: Hashable, submission: Submission) -> None:
        """Hand in one submission; waits while `max_in_flight` others have no verdict.

        Raises:
            FleetError: Actors die again and again before they can work.
        """
        while self._unanswered >= self._max_in_flight:
            self._pump(timeout_s=1.0)
        self._unanswered += 1
        self._assign(_Item(key, submission))

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
        stations = [station for station in self._stations() if station.handle is not None]
        calls = [station.handle.close.remote() for station in stations]
        if calls:
            ray.wait(calls, num_returns=len(calls), timeout=CLOSE_LIMIT_S)
        for station in stations:
            ray.kill(station.handle)
            station.handle = None
            station.in_flight.clear()
            station.outbox.clear()
        self._finished.clear()
        self._unanswered = 0

    def _stations(self) -> list[_Station]:
        return [*self._workers, *(s for stations in self._nodes.values() for s in stations)]

    def _assign(self, item: _Item) -> None:
        problem = item.submission.problem
        if problem.verifier in self._node_specs:
            station = min(self._nodes[problem.verifier], key=lambda s: s.load)
        else:
            home, waiting = self._home.get(problem.id, (None, 0))
            station = home or min(self._workers, key=lambda s: s.load)
            self._home[problem.id] = station, waiting + 1
        station.load += 1
        station.outbox.append(item)
        station.send()

    def _answer(self, station: _Station, item: _Item, verdict: Verdict) -> None:
        self._release(station, item)
        self._unanswered -= 1
        self._finished.append((item.key, verdict))

    def _release(self, station: _Station, item: _Item) -> None:
        """Forget that this station works on the item, and the problem's home with its last one."""
        station.load -= 1
        problem = item.submission.problem
        if problem.id in self._home and problem.verifier not in self._node_specs:
            home, waiting = self._home[problem.id]
            if waiting == 1:
                del self._home[problem.id]
            else:
                self._home[problem.id] = home, waiting - 1

    def _pump(self, timeout_s: float) -> None:
        """Take in what the actors have answered; wait for the first answer at most `timeout_s`."""
        calls = {call: s for s in self._stations() for call in s.in_flight}
        if not calls:
            return
        answered, _ = ray.wait(list(calls), num_returns=1, timeout=timeout_s, fetch_local=True)
        more, _ = ray.wait(list(calls), num_returns=len(calls), timeout=0, fetch_local=True)
        for call in dict.fromkeys([*answered, *more]):
            self._receive(calls[call], call)
        for station in self._stations():
            station.send()

    def _receive(self, station: _Station, call: ray.ObjectRef) -> None:
        if call not in station.in_flight:  # dealt with when its actor's death was noticed
            return
        try:
            verdicts = ray.get(call)
        except RayTaskError as error:
            raised = _not_verified(Reason.VERIFIER_RAISED, str(error))
            verdicts = [raised] * len(station.in_flight[call])
        except RayError as error:
            self._replace(station, error)
            return
        for item, verdict in zip(station.in_flight.pop(call), verdicts, strict=True):
            self._answer(station, item, verdict)

    def _replace(self, station: _Station, error: RayError) -> None:
        """Start a dead actor anew and try again what it had not answered."""
        if station.has_started():
            station.failed_starts = 0
        else:
            station.failed_starts += 1
            if station.failed_starts >= MAX_FAILED_STARTS:
                raise FleetError(f"a verifier actor cannot start: {error}") from error
        lost = self._collect_lost(station)
        # Calls run in the order they were sent: only the foremost can have caused the death.
        for item in (item for batch in lost[: station.num_threads] for item in batch):
            item.tries += 1
        again = []
        for item in (item for batch in lost for item in batch):
            if item.tries < MAX_TRIES:
                again.append(item)
            else:
                detail = (
                    f"{item.tries} verifier actors died with this submission, the last: {error}"
                )
                self._answer(station, item, _not_verified(Reason.WORKER_DIED, detail))
        ray.kill(
            station.handle
        )  # one that is merely out of reach must not come back beside its successor
        if station.node_id is not None and station.node_id not in _alive_nodes():
            self._move_away(station, [*again, *station.outbox])
            return
        station.outbox.extendleft(reversed(again))
        station.start()
        station.send()

    def _collect_lost(self, station: _Station) -> list[list[_Item]]:
        """Take in the answers that did come; the batches without one, oldest first."""
        lost = []
        for call, batch in list(station.in_flight.items()):
            del station.in_flight[call]
            try:
                verdicts = ray.get(call, timeout=LOST_CALL_LIMIT_S)
            except RayError:
                lost.append(batch)
                continue
            for item, verdict in zip(batch, verdicts, strict=True):
                self._answer(station, item, verdict)
        return lost

    def _move_away(self, station: _Station, items: list[_Item]) -> None:
        """Give the items of a node that is gone to the other nodes."""
        for name in station.specs:
            self._nodes[name].remove(station)
            if not self._nodes[name]:
                raise FleetError(f"no node is left for the verifier {name!r}")
        for item in items:
            self._release(station, item)
            self._assign(item)

    def _await_check(self, station: _Station, give_up: float) -> None:
        assert station.check is not None
        try:
            faults = ray.get(station.check, timeout=max(0.0, give_up - time.monotonic()))
        except GetTimeoutError as error:
            raise FleetError(
                f"verifiers {', '.join(station.specs)} were not ready in time"
            ) from error
        except RayError as error:
            raise FleetError(
                f"verifiers {', '.join(station.specs)} cannot start: {error}"
            ) from error
        if faults:
            raise FleetError("the verifiers' self-check failed: " + "; ".join(faults))


def _alive_nodes() -> list[str]:
    return [node["NodeID"] for node in ray.nodes() if node["Alive"]]


def _not_verified(reason: Reason, detail: str) -> Verdict:
    return Verdict(status=Status.ERROR, score=None, reason=reason, verifier="fleet", detail=detail)
