"""The rollouts of one call of `generate`, in the order in which they end."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import ray

from grpo.rollout.engine import Placed
from grpo.rollout.errors import EngineStalled
from grpo.rollout.handles import EngineHandle
from grpo.rollout.protocol import Report
from grpo.rollout.routing import Router
from grpo.values import Rollout, RolloutRequest, SamplingOptions

# How long an actor holds its answer back while it has nothing to say. Even an empty answer is a
# sign of life, so this has to be well below any stall timeout.
TAKE_WAIT_S = 1.0


@dataclass(slots=True, kw_only=True)
class _Lane:
    """What one engine has to do for this call.

    Attributes:
        unfinished: Members still to come, by the place of their group in the call.
        taking: Whether a `take` is under way.
        progress: The engine's last sign of life.
        waited_s: Seconds that this side has waited without a new one.
    """

    unfinished: dict[int, int] = field(default_factory=dict)
    taking: bool = False
    progress: int = -1
    waited_s: float = 0.0


class RolloutStream(Iterator[Rollout]):
    """Yields every rollout of a call exactly once.

    The first groups are with the engines when this object exists; the others follow as there is
    room. Leaving early (`close`, or the end of a `with` block) aborts what has not ended.

    Args:
        call: Name of the call, unique in its pool.
        engines: The pool's engines.
        router: Chooses the engines of this call.
        requests: The groups.
        sampling: How they are sampled.
        stall_timeout_s: Longest time in which an engine may get nothing done.
    """

    def __init__(
        self,
        *,
        call: str,
        engines: Sequence[EngineHandle],
        router: Router,
        requests: Sequence[RolloutRequest],
        sampling: SamplingOptions,
        stall_timeout_s: float,
    ) -> None:
        self._call = call
        self._engines = engines
        self._router = router
        self._requests = tuple(requests)
        self._sampling = sampling
        self._stall_timeout_s = stall_timeout_s
        self._unplaced = deque(range(len(requests)))
        self._lanes = [_Lane() for _ in engines]
        # Calls of actors under way: which engine, and whether the answer is a report.
        self._pending: dict[Any, tuple[int, bool]] = {}
        self._ready: deque[Rollout] = deque()
        self._feed()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Rollout:
        while not self._ready:
            if not any(lane.unfinished for lane in self._lanes):
                assert not self._unplaced, "an idle engine takes a group of any size"
                raise StopIteration
            self._collect()
            self._feed()
        return self._ready.popleft()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def abort(self, problem_ids: Collection[str]) -> None:
        """End the unfinished rollouts of some problems.

        Each is yielded with finish reason `abort` and no tokens.
        """
        unplaced = deque[int]()
        for index in self._unplaced:
            if self._requests[index].problem_id in problem_ids:
                self._ready.extend(make_unstarted(self._requests[index]))
            else:
                unplaced.append(index)
        self._unplaced = unplaced
        for engine, lane in zip(self._engines, self._lanes, strict=True):
            wanted = [i for i in lane.unfinished if self._requests[i].problem_id in problem_ids]
            if wanted:
                self._wait_for(engine, engine.actor.abort.remote(self._call, wanted), "aborting")

    def close(self) -> None:
        """Abort everything that has not ended. Calling it twice is harmless."""
        self._unplaced.clear()
        self._ready.clear()
        self._pending.clear()
        for place, (engine, lane) in enumerate(zip(self._engines, self._lanes, strict=True)):
            if lane.unfinished:
                for index, members in lane.unfinished.items():
                    self._router.release(place, members, self._tokens_each(index))
                lane.unfinished.clear()
                self._wait_for(engine, engine.actor.cancel.remote(self._call), "cancelling")

    def _feed(self) -> None:
        """Give engines groups while they have room."""
        placed: dict[int, list[Placed]] = {}
        while self._unplaced:
            index = self._unplaced[0]
            request = self._requests[index]
            place = self._router.place(len(request.seeds), self._tokens_each(index))
            if place is None:
                break
            self._unplaced.popleft()
            placed.setdefault(place, []).append(Placed(index=index, request=request))
            self._lanes[place].unfinished[index] = len(request.seeds)
        for place, groups in placed.items():
            submitted = self._engines[place].actor.submit.remote(self._call, groups, self._sampling)
            self._pending[submitted] = (place, False)
        for place, lane in enumerate(self._lanes):
            if lane.unfinished and not lane.taking:
                lane.taking = True
                report = self._engines[place].actor.take.remote(self._call, TAKE_WAIT_S)
                self._pending[report] = (place, True)

    def _collect(self) -> None:
        """Wait for the next answer of any engine, and take in what it says."""
        started = time.monotonic()
        done, _ = ray.wait(list(self._pending), num_returns=1, timeout=TAKE_WAIT_S)
        waited_s = time.monotonic() - started
        # Only time spent waiting counts: the caller may come back after minutes to an engine that
        # is long done.
        for lane in self._lanes:
            lane.waited_s += waited_s
        for reference in done:
            place, is_report = self._pending.pop(reference)
            answer = self._wait_for(self._engines[place], reference, "generating")
            if is_report:
                self._receive(place, answer)
        self._raise_if_stalled()

    def _receive(self, place: int, report: Report) -> None:
        lane = self._lanes[place]
        lane.taking = False
        if report.progress != lane.progress:
            lane.progress, lane.waited_s = report.progress, 0.0
        for index, rollout in report.rollouts:
            self._router.release(place, 1, self._tokens_each(index))
            lane.unfinished[index] -= 1
            if not lane.unfinished[index]:
                del lane.unfinished[index]
            self._ready.append(rollout)

    def _raise_if_stalled(self) -> None:
        for engine, lane in zip(self._engines, self._lanes, strict=True):
            if lane.unfinished and lane.waited_s > self._stall_timeout_s:
                names = [self._requests[i].problem_id for i in lane.unfinished]
                raise EngineStalled(
                    f"{engine.name} produced no token for {lane.waited_s:.0f} s, with {len(names)} "
                    f"groups unfinished: {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}."
                )

    def _wait_for(self, engine: EngineHandle, reference: Any, doing: str) -> Any:
        return engine.get(reference, timeout_s=self._stall_timeout_s, doing=doing)

    def _tokens_each(self, index: int) -> int:
        return len(self._requests[index].prompt_ids) + self._sampling.max_completion_length


def make_unstarted(request: RolloutRequest) -> list[Rollout]:
    """What stands for a group that was aborted before an engine saw it."""
    return [
        Rollout(
            problem_id=request.problem_id,
            member=member,
            prompt_ids=request.prompt_ids,
            completion_ids=(),
            logprobs=(),
            text="",
            finish_reason="abort",
            policy_versions=(),
            seed=seed,
        )
        for member, seed in enumerate(request.seeds)
    ]
