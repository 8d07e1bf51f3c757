"""The rollouts of one call of `generate`, in the order in which they end."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Self

import ray

from grpo.rollout.engine import Placed
from grpo.rollout.errors import EngineDied, EngineStalled, RolloutError
from grpo.rollout.lane import Lane
from grpo.rollout.protocol import Report
from grpo.rollout.routing import Router
from grpo.rollout.supervisor import Supervisor
from grpo.rollout.suspects import Suspects
from grpo.timing import Timeline
from grpo.values import Rollout, RolloutRequest, SamplingOptions
from grpo.waits import ENGINE_TRACK, ROLLOUT_QUEUE
from verifiers.incident import NoteIncident

# How long an actor holds its answer back while it has nothing to say. Even an empty answer is a
# sign of life, so this has to be well below any stall timeout.
TAKE_WAIT_S = 1.0
# How long this side waits before it looks around.
LOOK_EVERY_S = 0.2
# An engine that is busy takes note of a cancellation after its step. One that hangs never does, and
# whoever leaves does not wait for it; the next to ask it will find it hanging.
CANCEL_WAIT_S = 5.0


class RolloutStream(Iterator[Rollout]):
    """Yields every rollout of a call exactly once.

    The first groups are with the engines when this object exists; the others follow as there is
    room. What an engine that failed had not finished goes to the next one that has room; a group
    that ends engine after engine is given up, and its members come out with finish reason `abort`.
    Leaving early (`close`, or the end of a `with` block) aborts what has not ended.

    Args:
        call: Name of the call, unique in its pool.
        engines: The pool's engines.
        router: Chooses the engines of this call.
        num_engines: Places in the pool.
        requests: The groups.
        sampling: How they are sampled.
        stall_timeout_s: Longest time in which an engine may get nothing done.
        note: Told of groups that are given up.
        timeline: Told when each engine worked on which group.
        on_wait: Called now and then while nothing ends; may raise.
    """

    def __init__(
        self,
        *,
        call: str,
        engines: Supervisor,
        router: Router,
        num_engines: int,
        requests: Sequence[RolloutRequest],
        sampling: SamplingOptions,
        stall_timeout_s: float,
        note: NoteIncident,
        timeline: Timeline,
        on_wait: Callable[[], None],
    ) -> None:
        self._call = call
        self._engines = engines
        self._router = router
        self._requests = tuple(requests)
        self._sampling = sampling
        self._stall_timeout_s = stall_timeout_s
        self._note = note
        self._timeline = timeline
        self._on_wait = on_wait
        self._unplaced = deque(
            Placed(index=index, request=request, members=tuple(range(len(request.seeds))))
            for index, request in enumerate(requests)
        )
        self._suspects = Suspects()
        self._lanes = [Lane() for _ in range(num_engines)]
        # Calls of actors under way: which lane, and whether the answer is a report.
        self._pending: dict[Any, tuple[int, bool]] = {}
        self._ready: deque[Rollout] = deque()
        self._feed()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Rollout:
        while not self._ready:
            if not self._unplaced and not any(lane.unfinished for lane in self._lanes):
                raise StopIteration
            self._feed()
            if self._pending:
                self._collect()
            elif not self._ready:
                # Every engine is being replaced.
                self._engines.wait_for_one(self._on_wait)
            if not self._ready:
                self._on_wait()
        return self._ready.popleft()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def abort(self, problem_ids: Collection[str]) -> None:
        """End the unfinished rollouts of some problems.

        Each is yielded with finish reason `abort` and no tokens.
        """
        for place, lane in enumerate(self._lanes):
            wanted = [i for i in lane.unfinished if self._requests[i].problem_id in problem_ids]
            if wanted and lane.engine is not None:
                self._ask(place, lane.engine.actor.abort.remote(self._call, wanted), "aborting")
        # Afterwards, for an engine that fails now gives back what it had.
        unplaced = deque[Placed]()
        for group in self._unplaced:
            if group.request.problem_id in problem_ids:
                self._ready.extend(make_unsampled(group))
            else:
                unplaced.append(group)
        self._unplaced = unplaced

    def close(self) -> None:
        """Abort everything that has not ended. Calling it twice is harmless."""
        asked = {
            lane.engine.actor.cancel.remote(self._call): place
            for place, lane in enumerate(self._lanes)
            if lane.unfinished and lane.engine is not None
        }
        if asked:
            # Doubted until it answers: a second Ctrl-C may end this wait.
            for place in asked.values():
                self._engines.doubt(place)
            answered, _ = ray.wait(
                list(asked), num_returns=len(asked), timeout=CANCEL_WAIT_S, fetch_local=False
            )
            for reference in answered:
                self._engines.doubt(asked[reference], doubted=False)
                self._ask(asked[reference], reference, "cancelling")
        for place in range(len(self._lanes)):
            self._take_back(place)
        self._unplaced.clear()
        self._ready.clear()
        self._pending.clear()

    def _feed(self) -> None:
        """Give engines groups while they have room."""
        serving = self._engines.serving()
        for place, lane in enumerate(self._lanes):
            if lane.unfinished and lane.engine is not serving.get(place):
                # Somebody else, a push perhaps, found this engine dead.
                self._lose(place, EngineDied(f"rollout engine {place} was replaced"))
        in_hand = [lane.unfinished for lane in self._lanes]
        placed: dict[int, list[Placed]] = {}
        while self._unplaced:
            group = self._unplaced[0]
            among = self._suspects.engines_for(group, serving, in_hand)
            place = self._router.place(
                len(group.members), self._tokens_each(group.index), among=among
            )
            if place is None:
                break
            self._unplaced.popleft()
            placed.setdefault(place, []).append(group)
            span = self._timeline.begin(
                f"{ENGINE_TRACK}{place}",
                group.request.problem_id,
                completions=len(group.members),
                prompt_tokens=len(group.request.prompt_ids),
            )
            self._lanes[place].give(serving[place], group, span=span)
        self._timeline.sample(ROLLOUT_QUEUE, sum(len(g.members) for g in self._unplaced))
        for place, groups in placed.items():
            actor = serving[place].actor
            self._pending[actor.submit.remote(self._call, groups, self._sampling)] = (place, False)
        for place, lane in enumerate(self._lanes):
            if lane.unfinished and not lane.taking:
                assert lane.engine is not None, "who has work was given it"
                lane.taking = True
                report = lane.engine.actor.take.remote(self._call, TAKE_WAIT_S)
                self._pending[report] = (place, True)

    def _collect(self) -> None:
        """Wait for the next answer of any engine, and take in what it says."""
        started = time.monotonic()
        done, _ = ray.wait(list(self._pending), num_returns=1, timeout=LOOK_EVERY_S)
        waited_s = time.monotonic() - started
        # Only time spent waiting counts: the caller may come back after minutes to an engine that
        # is long done.
        for lane in self._lanes:
            lane.waited_s += waited_s
        for reference in done:
            if reference not in self._pending:
                continue
            place, is_report = self._pending.pop(reference)
            answer = self._ask(place, reference, "generating")
            if is_report and answer is not None:
                self._receive(place, answer)
        self._find_stalled()

    def _receive(self, place: int, report: Report) -> None:
        lane = self._lanes[place]
        lane.taking = False
        self._engines.remember(place, report.vitals)
        if report.progress != lane.progress:
            lane.progress, lane.waited_s = report.progress, 0.0
        for index, rollout in report.rollouts:
            self._router.release(place, 1, self._tokens_each(index))
            span = lane.finish(index, rollout.member)
            if span is not None:
                self._timeline.end(span)
            self._ready.append(rollout)

    def _find_stalled(self) -> None:
        for place, lane in enumerate(self._lanes):
            if lane.unfinished and lane.waited_s > self._stall_timeout_s:
                assert lane.engine is not None, "who has work was given it"
                names = [self._requests[i].problem_id for i in lane.unfinished]
                error = EngineStalled(
                    f"{lane.engine.name} produced no token for {lane.waited_s:.0f} s, with "
                    f"{len(names)} groups unfinished: {', '.join(names[:5])}"
                    f"{', ...' if len(names) > 5 else ''}."
                )
                self._lose(place, error)

    def _ask(self, place: int, reference: Any, doing: str) -> Any:
        """The answer of a lane's engine; None when the engine failed, which is dealt with."""
        engine = self._lanes[place].engine
        assert engine is not None, "only who has been given something is asked"
        try:
            return engine.get(reference, timeout_s=self._stall_timeout_s, doing=doing)
        except RolloutError as error:
            self._lose(place, error)
            return None

    def _lose(self, place: int, error: RolloutError) -> None:
        """Have an engine replaced, and queue what it had not finished again."""
        lane = self._lanes[place]
        assert lane.engine is not None, "only who has been given something is lost"
        engine, owed = lane.engine, self._take_back(place)
        again, given_up = self._suspects.blame(owed)
        self._engines.replace(
            engine,
            error,
            problem_ids=[group.request.problem_id for group in owed],
            num_redone=sum(len(group.members) for group in again),
        )
        self._unplaced.extendleft(reversed(again))
        for group in given_up:
            self._note(self._suspects.describe(group, error))
            self._ready.extend(make_unsampled(group))

    def _take_back(self, place: int) -> list[Placed]:
        """Empty a lane; what was unfinished in it."""
        lane = self._lanes[place]
        owed = lane.owed(self._requests)
        for group in owed:
            self._timeline.end(lane.spans[group.index])
            self._router.release(place, len(group.members), self._tokens_each(group.index))
        self._pending = {r: (p, kind) for r, (p, kind) in self._pending.items() if p != place}
        self._lanes[place] = Lane()
        return owed

    def _tokens_each(self, index: int) -> int:
        return len(self._requests[index].prompt_ids) + self._sampling.max_completion_length


def make_unsampled(group: Placed) -> list[Rollout]:
    """What stands for completions that no engine finished."""
    return [
        Rollout(
            problem_id=group.request.problem_id,
            member=member,
            prompt_ids=group.request.prompt_ids,
            completion_ids=(),
            logprobs=(),
            text="",
            finish_reason="abort",
            policy_versions=(),
            seed=group.request.seeds[member],
        )
        for member in group.members
    ]
