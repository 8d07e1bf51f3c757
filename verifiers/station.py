"""One Ray actor that holds a judge, with the work that waits for it."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from verifiers.judge import Judge
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


@dataclass(slots=True)
class Work:
    """What is judged in one piece: a submission, or all those of a group.

    Attributes:
        keys: The caller's, one for each submission.
        submissions: To one problem.
        tries: Actors that died at it.
    """

    keys: tuple[Hashable, ...]
    submissions: tuple[Submission, ...]
    tries: int = 0

    @property
    def problem(self) -> Problem:
        """What all submissions answer."""
        return self.submissions[0].problem


class JudgeActor:
    """A judge in an actor's process."""

    def __init__(self, specs: Mapping[str, Mapping[str, Any]], directory: str) -> None:
        if Path(directory).is_dir():  # plug-in paths are relative to where the command runs
            os.chdir(directory)
        self._judge = Judge(specs)

    def judge(self, pieces: list[tuple[Submission, ...]]) -> tuple[list[list[Verdict]], Vitals]:
        """Verdicts on every piece of work, and the state of this process."""
        return [self._judge.verify_group(submissions) for submissions in pieces], read_vitals()

    @ray.method(concurrency_group=WATCH)
    def describe_threads(self) -> str:
        """Where this process stands, for the report on an actor that hangs."""
        return describe_threads()

    def self_check(self) -> list[str]:
        """See `Judge.self_check`."""
        return self._judge.self_check()

    def close(self) -> None:
        """See `Judge.close`."""
        self._judge.close()


@dataclass(slots=True)
class Station:
    """One actor, with the work that waits for it and the calls that it has yet to answer."""

    specs: Mapping[str, Mapping[str, Any]]
    num_threads: int
    node_id: str | None = None
    handle: Any = None
    check: Any = None
    failed_starts: int = 0
    outbox: deque[Work] = field(default_factory=deque)
    in_flight: dict[ray.ObjectRef, list[Work]] = field(default_factory=dict)
    load: int = 0
    vitals: Vitals | None = None
    # When it was last given something while idle, or answered.
    since: float = 0.0
    awake: bool = False

    @property
    def name(self) -> str:
        """How messages call it."""
        place = f" on node {self.node_id[:8]}" if self.node_id else ""
        return f"verifier actor of {', '.join(self.specs)}{place}"

    @property
    def batch_size(self) -> int:
        """Pieces in a call: several where they are taken in turn, one where threads share them."""
        return BATCH_SIZE if self.num_threads == 1 else 1

    def start(self) -> None:
        """Create the actor, without waiting for it."""
        options: dict[str, Any] = {
            "num_cpus": 0,
            "max_concurrency": self.num_threads,
            "concurrency_groups": {WATCH: 1},
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
        self.check = self.handle.self_check.remote()
        self.awake = False

    def has_started(self) -> bool:
        """Whether the present actor ever answered."""
        answered, _ = ray.wait([self.check], timeout=0)
        try:
            return bool(answered) and ray.get(self.check) is not None
        except RayError:
            return False

    def stalls(self, timeout_s: float) -> bool:
        """Whether it has had work for this long without an answer; a start may take longer."""
        if not self.in_flight:
            return False
        if not self.awake and self.has_started():
            self.awake, self.since = True, time.monotonic()
        allowed_s = timeout_s if self.awake else timeout_s + START_LIMIT_S
        return time.monotonic() - self.since > allowed_s

    def receive(self, call: ray.ObjectRef, timeout_s: float | None = None) -> list[list[Verdict]]:
        """The answer to a call, and a sign of life.

        Raises:
            RayError: There is none.
        """
        answers, self.vitals = ray.get(call, timeout=timeout_s)
        self.since = time.monotonic()
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
        """Send full batches at once, and the remainder when the actor has nothing else to do."""
        while self.outbox and (len(self.outbox) >= self.batch_size or not self.in_flight):
            batch = [self.outbox.popleft()]
            # Work whose call died goes alone, so that it takes no other with it again.
            while self.outbox and len(batch) < self.batch_size:
                if batch[0].tries or self.outbox[0].tries:
                    break
                batch.append(self.outbox.popleft())
            if not self.in_flight:
                self.since = time.monotonic()
            call = self.handle.judge.remote([work.submissions for work in batch])
            self.in_flight[call] = batch
