"""Sampling and verifying side by side: every rollout goes to the verifiers as soon as it ends."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Protocol

from grpo.rewards import RewardPolicy, check_components, compute_reward
from grpo.seeding import derive_seed
from grpo.timing import LOOP, Span, Timeline
from grpo.values import Rollout, RolloutRequest, SamplingOptions, ScoredGroup, ScoredRollout
from grpo.waits import VERIFICATION_QUEUE, VERIFIER_TRACK
from verifiers.problem import Problem, Submission
from verifiers.verdict import Reason, Status, Verdict

_NOT_SAMPLED = Verdict(
    status=Status.ERROR,
    score=None,
    reason=Reason.NOT_SAMPLED,
    verifier="pool",
    detail="No engine finished this completion; see incidents.jsonl.",
)


class Rollouts(Iterator[Rollout], Protocol):
    """What a call of `generate` gives."""

    def close(self) -> None:
        """Give up what has not ended."""
        ...


class Pool(Protocol):
    """What samples completions."""

    def generate(
        self,
        requests: Sequence[RolloutRequest],
        sampling: SamplingOptions,
        on_wait: Callable[[], None],
    ) -> Rollouts:
        """Rollouts in the order in which they end; `on_wait` is called while none does."""
        ...


class Fleet(Protocol):
    """What verifies them."""

    @property
    def pending(self) -> int:
        """Submissions without a verdict yet."""
        ...

    def submit(
        self,
        key: Hashable,
        submission: Submission,
        *,
        group: Hashable,
        group_size: int,
        on_wait: Callable[[], None] = ...,
    ) -> None:
        """Hand in a submission, one of its group; while there is no room `on_wait` is called."""
        ...

    def finished(self, timeout_s: float) -> list[tuple[Hashable, Verdict]]:
        """Verdicts that are there, waiting up to `timeout_s` seconds for the first."""
        ...


class Collector:
    """Turns problems into scored groups.

    Args:
        pool: Where completions are sampled.
        fleet: Where they are verified.
        prompts: Token ids of every problem's prompt, by problem id.
        rewards: What a verdict is worth.
        timeline: Told when the phases `generation` and `verification_tail` begin and end.
        check_stop: Called between events; may raise to leave early.
        completion_prefix: What prompts end with that is the completion's beginning for verifiers.
        track: Whose the phases are: the loop's, or another thread's.
    """

    def __init__(
        self,
        *,
        pool: Pool,
        fleet: Fleet,
        prompts: Mapping[str, tuple[int, ...]],
        rewards: RewardPolicy,
        timeline: Timeline,
        check_stop: Callable[[], None],
        completion_prefix: str = "",
        track: str = LOOP,
    ) -> None:
        self._pool = pool
        self._fleet = fleet
        self._prompts = prompts
        self._rewards = rewards
        self._timeline = timeline
        self._check_stop = check_stop
        self._completion_prefix = completion_prefix
        self._track = track

    def collect(
        self,
        problems: Sequence[Problem],
        sampling: SamplingOptions,
        *,
        group_size: int,
        seed_parts: tuple[object, ...],
        on_group: Callable[[ScoredGroup], None] | None = None,
    ) -> tuple[ScoredGroup, ...]:
        """Sample and verify one group for each problem.

        Args:
            problems: In the order the groups come back in; a problem may be there twice.
            sampling: How completions are drawn.
            group_size: Completions of each problem.
            seed_parts: What the rollouts' seeds depend on, besides problem and member.
            on_group: Given each group as soon as it and all before it are there.
        """
        asked = _name_requests(problems)
        requests = [
            RolloutRequest(
                problem_id=name,
                prompt_ids=self._prompts[problem.id],
                seeds=tuple(derive_seed(*seed_parts, name, member) for member in range(group_size)),
            )
            for name, problem in asked.items()
        ]
        call = _Call(asked, group_size, score=self._score, on_group=on_group)

        def look_around() -> None:
            self._check_stop()
            self._receive(call, timeout_s=0.0)

        with (
            self._timeline.phase("generation", track=self._track),
            closing(self._pool.generate(requests, sampling, look_around)) as stream,
        ):
            for rollout in stream:
                self._check_stop()
                self._fleet.submit(
                    call.add(rollout),
                    _make_submission(asked[rollout.problem_id], rollout, self._completion_prefix),
                    group=(call, rollout.problem_id),
                    group_size=group_size,
                    on_wait=self._check_stop,
                )
                self._timeline.sample(VERIFICATION_QUEUE, self._fleet.pending)
                self._receive(call, timeout_s=0.0)
        with self._timeline.phase("verification_tail", track=self._track):
            while not call.complete:
                self._check_stop()
                self._receive(call, timeout_s=0.1)
            self._timeline.sample(VERIFICATION_QUEUE, 0)
        check_components(call.verdicts, self._rewards)
        return tuple(call.groups)

    def _receive(self, call: _Call, *, timeout_s: float) -> None:
        """Take verdicts in, and when each was being reached."""
        for key, verdict in self._fleet.finished(timeout_s=timeout_s):
            call.judge(key, verdict)
            now = time.perf_counter()
            self._timeline.add(
                Span(
                    track=VERIFIER_TRACK,
                    name=verdict.verifier,
                    begin=now - verdict.seconds,
                    end=now,
                    facts={"status": str(verdict.status)},
                )
            )

    def _score(self, rollout: Rollout, verdict: Verdict) -> ScoredRollout:
        if rollout.finish_reason == "abort":
            # Judged as well, for a verifier that waits for whole groups; but of no completion there
            # is nothing to find.
            verdict = _NOT_SAMPLED
        reward = compute_reward(verdict, len(rollout.completion_ids), self._rewards)
        if reward is None:
            return ScoredRollout(rollout=rollout, verdict=verdict, reward=None)
        return ScoredRollout(
            rollout=rollout, verdict=verdict, reward=reward.total, reward_parts=reward.parts
        )


class _Call:
    """Rollouts and verdicts of one call of `collect`, made into groups in their order.

    Args:
        asked: The problem of each group, by the group's name.
        group_size: Completions of each.
        score: Makes a rollout and its verdict worth something.
        on_group: Given each group; None where nobody waits for one.
    """

    def __init__(
        self,
        asked: Mapping[str, Problem],
        group_size: int,
        *,
        score: Callable[[Rollout, Verdict], ScoredRollout],
        on_group: Callable[[ScoredGroup], None] | None,
    ) -> None:
        self.groups: list[ScoredGroup] = []
        self._score = score
        self._on_group = on_group
        self._size = group_size
        self._to_come = deque(asked.items())
        self._rollouts: dict[Hashable, Rollout] = {}
        self._verdicts: dict[str, dict[int, Verdict]] = {name: {} for name in asked}

    @property
    def complete(self) -> bool:
        """Whether all groups are there."""
        return not self._to_come

    @property
    def verdicts(self) -> list[Verdict]:
        """All so far."""
        return [verdict for group in self._verdicts.values() for verdict in group.values()]

    def add(self, rollout: Rollout) -> Hashable:
        """Take a rollout in.

        Returns:
            What its verdict is known by.
        """
        self._rollouts[rollout.problem_id, rollout.member] = rollout
        return self, rollout.problem_id, rollout.member

    def judge(self, key: Any, verdict: Verdict) -> None:
        """Take a verdict in; those of a call that was left early still come, and are nobody's."""
        call, name, member = key
        if call is self:
            self._verdicts[name][member] = verdict
            while self._to_come and len(self._verdicts[self._to_come[0][0]]) == self._size:
                self._close_group()

    def _close_group(self) -> None:
        name, problem = self._to_come.popleft()
        found = self._verdicts[name]
        members = (self._score(self._rollouts[name, m], found[m]) for m in range(self._size))
        self.groups.append(ScoredGroup(problem=problem, members=tuple(members)))
        if self._on_group is not None:
            self._on_group(self.groups[-1])


def _name_requests(problems: Sequence[Problem]) -> dict[str, Problem]:
    """Give every group its own name: the problem's id, numbered where a problem comes twice."""
    named: dict[str, Problem] = {}
    for problem in problems:
        name, again = problem.id, 1
        while name in named:
            again += 1
            name = f"{problem.id}#{again}"
        named[name] = problem
    return named


def _make_submission(problem: Problem, rollout: Rollout, prefix: str) -> Submission:
    return Submission(
        problem=problem, completion=prefix + rollout.text, truncated=rollout.truncated
    )
