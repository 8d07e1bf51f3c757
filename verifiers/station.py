"""One Ray actor that holds a judge, and the line of work that each of its verifiers has."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from verifiers.judge import Judge
from verifiers.parcels import Parcel, ProblemShelf, StoredProblem
from verifiers.problem import Problem, Submission
from verifiers.verdict import Verdict
from verifiers.vitals import Vitals, describe_threads, read_vitals

START_LIMIT_S = 120.0
BATCH_SIZE = 16
STACK_WAIT_S = 5.0
# Ray keeps these calls apart from the judging, so that an actor that hangs still answers.
WATCH = "watch"
ACTOR_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "CUDA_VISIBLE_DEVICES": "",
}


class FleetError(RuntimeError):
    """The fleet cannot reach verdicts at all, or reaches wrong ones on known answers."""


@dataclass(slots=True)
class Work:
    """What is judged in one piece: a submission, or all those of a group.

    Attributes:
        keys: The caller's, one for each submission.
        submissions: To one problem.
        tries: Actors that died at it.
        stored: Where the problem is, if it does not go with the completions.
    """

    keys: tuple[Hashable, ...]
    submissions: tuple[Submission, ...]
    tries: int = 0
    stored: StoredProblem | None = None

    @property
    def problem(self) -> Problem:
        """What all submissions answer."""
        return self.submissions[0].problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What a verifier's start came to.

    Attributes:
        obstacle: Why it cannot work on that machine.
        faults: A sentence for each wrong verdict on a known answer.
    """

    obstacle: str | None = None
    faults: Sequence[str] = ()


class JudgeActor:
    """A judge in an actor's process."""

    def __init__(self, specs: Mapping[str, Mapping[str, Any]], directory: str) -> None:
        if Path(directory).is_dir():  # plug-in paths are relative to where the command runs
            os.chdir(directory)
        self._judge = Judge(specs)
        self._shelf = ProblemShelf()

    def judge(self, parcels: list[Parcel]) -> tuple[list[list[Verdict]], Vitals]:
        """Verdicts on every piece of work, and the state of this process."""
        pieces = map(self._shelf.unpack, parcels)
        return [self._judge.verify_group(submissions) for submissions in pieces], read_vitals()

    @ray.method(concurrency_group=WATCH)
    def describe_threads(self) -> str:
        """Where this process stands, for the report on an actor that hangs."""
        return describe_threads()

    def check(self, verifier: str) -> Check:
        """Whether the verifier works here, and judges its known answers as it should."""
        obstacle = self._judge.find_obstacle(verifier)
        if obstacle is not None:
            return Check(obstacle=obstacle)
        return Check(faults=self._judge.self_check(verifier))

    def close(self) -> None:
        """See `Judge.close`."""
        self._judge.close()


@dataclass(slots=True)
class Lane:
    """The work for one verifier of an actor.

    Attributes:
        verifier: Its name.
        concurrency: Calls that the actor runs at the same time, in the order they were sent.
        outbox: Not sent yet.
        in_flight: Calls without an answer, oldest first.
        since: When it was last given something while idle, or answered.
    """

    verifier: str
    concurrency: int
    outbox: deque[Work] = field(default_factory=deque)
    in_flight: dict[ray.ObjectRef, list[Work]] = field(default_factory=dict)
    since: float = 0.0

    @property
    def batch_size(self) -> int:
        """Pieces in a call: several where they are taken in turn, one where threads share them."""
        return BATCH_SIZE if self.concurrency == 1 else 1

    def send(self, handle: Any) -> None:
        """Send full batches at once, and the remainder when there is nothing else to do."""
        while self.outbox and (len(self.outbox) >= self.batch_size or not self.in_flight):
            batch = [self.outbox.popleft()]
            # Work whose call died goes alone, so that it takes no other with it again.
            while self.outbox and len(batch) < self.batch_size:
                if batch[0].tries or self.outbox[0].tries:
                    break
                batch.append(self.outbox.popleft())
            if not self.in_flight:
                self.since = time.monotonic()
            judge = handle.judge.options(concurrency_group=self.verifier)
            parcels = [Parcel.pack(work.submissions, work.stored) for work in batch]
            self.in_flight[judge.remote(parcels)] = batch


class Station:
    """One actor, with the work that waits for it and the calls that it has yet to answer.

    Args:
        specs: Options of its verifiers, by name.
        concurrency: What each of them judges at the same time.
        node_id: The node that it belongs on; None for any.
    """

    def __init__(
        self,
        specs: Mapping[str, Mapping[str, Any]],
        concurrency: Mapping[str, int],
        node_id: str | None = None,
    ) -> None:
        self.specs = specs
        self.node_id = node_id
        self.lanes = {name: Lane(name, concurrency[name]) for name in specs}
        self.handle: Any = None
        self.checks: list[ray.ObjectRef] = []
        self.failed_starts = 0
        self.load = 0
        self.vitals: Vitals | None = None
        self._awake = False

    @property
    def name(self) -> str:
        """How messages call it."""
        place = f" on node {self.node_id[:8]}" if self.node_id else ""
        return f"verifier actor of {', '.join(self.specs)}{place}"

    def start(self) -> None:
        """Create the actor, without waiting for it."""
        options: dict[str, Any] = {
            "num_cpus": 0,
            # A verifier that is slow, or not made for threads, keeps to its own.
            "concurrency_groups": {WATCH: 1}
            | {name: lane.concurrency for name, lane in self.lanes.items()},
            "runtime_env": {"env_vars": ACTOR_ENVIRONMENT},
        }
        # Workers set no cores aside, so that those of a lost node come back on another at once.
        options["scheduling_strategy"] = (
            "SPREAD"
            if self.node_id is None
            else NodeAffinitySchedulingStrategy(self.node_id, soft=False)
        )
        actor_class = ray.remote(**options)(JudgeActor)
        self.handle = actor_class.remote(self.specs, str(Path.cwd()))
        self.checks = [
            self.handle.check.options(concurrency_group=name).remote(name) for name in self.specs
        ]
        self._awake = False

    def await_checks(self, give_up: float) -> str | None:
        """Why its machine is none for the verifiers; None where they judge as they should.

        Args:
            give_up: On the monotonic clock.

        Raises:
            FleetError: The actor cannot start, is not ready in time, or judges wrongly.
        """
        names = ", ".join(self.specs)
        try:
            checks: list[Check] = ray.get(self.checks, timeout=max(0.0, give_up - time.monotonic()))
        except GetTimeoutError as error:
            raise FleetError(f"verifiers {names} were not ready in time") from error
        except RayError as error:
            raise FleetError(f"verifiers {names} cannot start: {error}") from error
        if faults := [fault for check in checks for fault in check.faults]:
            raise FleetError("the verifiers' self-check failed: " + "; ".join(faults))
        return next((check.obstacle for check in checks if check.obstacle is not None), None)

    def has_started(self) -> bool:
        """Whether the present actor ever answered."""
        answered, _ = ray.wait(self.checks, num_returns=1, timeout=0)
        try:
            return bool(answered) and ray.get(answered[0]) is not None
        except RayError:
            return False

    def find_stalled(self, timeout_s: float) -> Lane | None:
        """A lane that has had work for this long without an answer; a start may take longer."""
        busy = [lane for lane in self.lanes.values() if lane.in_flight]
        if not busy:
            return None
        now = time.monotonic()
        if not self._awake and self.has_started():
            self._awake = True
            for lane in busy:
                lane.since = now
        allowed_s = timeout_s if self._awake else timeout_s + START_LIMIT_S
        return next((lane for lane in busy if now - lane.since > allowed_s), None)

    def receive(
        self, lane: Lane, call: ray.ObjectRef, timeout_s: float | None = None
    ) -> list[list[Verdict]]:
        """The answer to a call, and a sign of life.

        Raises:
            RayError: There is none.
        """
        answers, self.vitals = ray.get(call, timeout=timeout_s)
        lane.since = time.monotonic()
        return answers

    def stop_stalled(self) -> str:
        """Kill the actor; where it stood before."""
        try:
            stack = str(ray.get(self.handle.describe_threads.remote(), timeout=STACK_WAIT_S))
        except RayError:
            stack = f"the process did not say within {STACK_WAIT_S:.0f} s"
        ray.kill(self.handle)
        return stack

    def send(self) -> None:
        """Send what there is room for."""
        for lane in self.lanes.values():
            lane.send(self.handle)
