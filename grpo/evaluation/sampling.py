"""Sampling and judging of an evaluation: groups come out as they are done, in any order."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Protocol, runtime_checkable

from grpo.collect import Fleet, Pool
from grpo.seeding import derive_seed
from grpo.values import Rollout, RolloutRequest, SamplingOptions, ScoredGroup, ScoredRollout
from verifiers.problem import Problem, Submission
from verifiers.verdict import Reason, Status, Verdict

_WAIT_S = 0.1


@runtime_checkable
class Explains(Protocol):
    """A pool that knows why a completion never came."""

    def explain(self, rollout: Rollout) -> tuple[Reason, str]:
        """The reason, and a sentence, for a rollout that was given up."""
        ...


def sample_groups(
    pool: Pool,
    fleet: Fleet,
    problems: Sequence[Problem],
    *,
    prompts: Mapping[str, tuple[int, ...]],
    sampling: SamplingOptions,
    num_samples: int,
    seed: int,
    prefix: str = "",
) -> Iterator[ScoredGroup]:
    """Sample and judge one group for each problem; verification goes on beside generation.

    Args:
        pool: Where completions are sampled.
        fleet: Where they are judged.
        problems: With ids that differ.
        prompts: Token ids of each prompt, by problem id; empty where a server makes them.
        sampling: How completions are drawn.
        num_samples: Completions for each problem.
        seed: Of the evaluation; a sample depends on it, its problem and its number alone.
        prefix: What the prompts end with that belongs to the completion for the verifiers.
    """
    asked = {problem.id: problem for problem in problems}
    requests = [
        RolloutRequest(
            problem_id=problem.id,
            prompt_ids=prompts.get(problem.id, ()),
            seeds=make_seeds(seed, problem.id, num_samples),
        )
        for problem in problems
    ]
    open_groups = _OpenGroups(asked, num_samples)
    verdicts: list[tuple[Hashable, Verdict]] = []

    def look_around() -> None:
        verdicts.extend(fleet.finished(timeout_s=0.0))

    for rollout in pool.generate(requests, sampling, look_around):
        aborted = rollout.finish_reason == "abort"
        submission = Submission(
            problem=asked[rollout.problem_id],
            completion=prefix + rollout.text,
            truncated=rollout.truncated or aborted,
        )
        # What never came is handed in too, for a verifier that waits for whole groups.
        key = open_groups.expect(rollout, _explain(pool, rollout) if aborted else None)
        fleet.submit(key, submission, group=rollout.problem_id, group_size=num_samples)
        look_around()
        yield from open_groups.take(verdicts)
        verdicts.clear()
    yield from open_groups.take(verdicts)
    while fleet.pending:
        yield from open_groups.take(fleet.finished(timeout_s=_WAIT_S))


def make_seeds(seed: int, problem_id: str, num_samples: int) -> tuple[int, ...]:
    """The seeds of a problem's samples; the same in an evaluation beside training."""
    return tuple(derive_seed(seed, "evaluate", problem_id, i) for i in range(num_samples))


class _OpenGroups:
    """Members that have come in, of groups that are not whole yet."""

    def __init__(self, problems: Mapping[str, Problem], size: int) -> None:
        self._problems = problems
        self._size = size
        self._rollouts: dict[Hashable, tuple[Rollout, Verdict | None]] = {}
        self._members: dict[str, dict[int, ScoredRollout]] = {}

    def expect(self, rollout: Rollout, verdict: Verdict | None) -> Hashable:
        """Keep a rollout until it is judged; the key that it is known by.

        Args:
            rollout: What was sampled.
            verdict: That counts whatever the verifier says; None where the verifier decides.
        """
        key = (rollout.problem_id, rollout.member)
        self._rollouts[key] = rollout, verdict
        return key

    def take(self, verdicts: Sequence[tuple[Hashable, Verdict]]) -> Iterator[ScoredGroup]:
        """Add verdicts; the groups that they complete."""
        for key, found in verdicts:
            rollout, fixed = self._rollouts.pop(key)
            verdict = fixed or found
            members = self._members.setdefault(rollout.problem_id, {})
            members[rollout.member] = ScoredRollout(
                rollout=rollout, verdict=verdict, reward=verdict.score
            )
            if len(members) == self._size:
                del self._members[rollout.problem_id]
                yield ScoredGroup(
                    problem=self._problems[rollout.problem_id],
                    members=tuple(members[number] for number in range(self._size)),
                )


def _explain(pool: Pool, rollout: Rollout) -> Verdict:
    reason, detail = (
        pool.explain(rollout)
        if isinstance(pool, Explains)
        else (Reason.NOT_SAMPLED, "No engine finished this completion.")
    )
    return Verdict(status=Status.ERROR, score=None, reason=reason, verifier="pool", detail=detail)
