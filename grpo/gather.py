"""The groups of a step: drawn, sampled, verified, and replaced where they teach nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from grpo.assemble import group_teaches
from grpo.collect import Collector
from grpo.data.sampler import ProblemSampler
from grpo.head_start import HeadStart
from grpo.ledger import PromptLedger
from grpo.values import SamplingOptions, ScoredGroup
from verifiers.problem import Problem

Accept = Callable[[Problem, int], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """What a step has to learn from.

    Attributes:
        step: Which.
        groups: All that were sampled, in the order in which their problems were drawn.
        surplus: How many of the last of them are beyond what the step needs.
        num_drawn: Draws of the sampler that are used up by the end of this step.
        remark: Why fewer groups have a signal than were wanted; None where that was reached.
    """

    step: int
    groups: tuple[ScoredGroup, ...]
    surplus: int = 0
    num_drawn: int
    remark: str | None = None

    @property
    def needed(self) -> tuple[ScoredGroup, ...]:
        """The groups that the batch is made of."""
        return self.groups[: len(self.groups) - self.surplus]


def count_surplus(groups: Sequence[ScoredGroup], wanted: int, estimator: str) -> int:
    """How many of the last groups come after as many that teach as are wanted."""
    found = 0
    for place, group in enumerate(groups, 1):
        found += group_teaches(group, estimator)
        if found == wanted:
            return len(groups) - place
    return 0


class Gatherer:
    """Gathers the groups of one step after the other.

    Args:
        sampler: Draws problems.
        collector: Samples and verifies.
        ledger: Says which share of the groups has a signal.
        sampling: How completions are drawn.
        advantage_estimator: Says which groups teach.
        accept: Whether to visit a problem whose turn has come, at this draw.
        group_size: Completions of each problem.
        prompts_per_step: Groups that a step wants.
        replace: Whether groups that teach nothing are replaced by new ones.
        max_gen_batches: Most problems of a step, in multiples of `prompts_per_step`.
        seed: The run's.
        head_start: Given each group as soon as it and all before it are there.
    """

    def __init__(
        self,
        *,
        sampler: ProblemSampler,
        collector: Collector,
        ledger: PromptLedger,
        sampling: SamplingOptions,
        advantage_estimator: str,
        accept: Accept,
        group_size: int,
        prompts_per_step: int,
        replace: bool,
        max_gen_batches: int,
        seed: int,
        head_start: HeadStart | None = None,
    ) -> None:
        self._sampler = sampler
        self._collector = collector
        self._ledger = ledger
        self._sampling = sampling
        self._estimator = advantage_estimator
        self._accept = accept
        self._group_size = group_size
        self._wanted = prompts_per_step
        self._replace = replace
        self._most = prompts_per_step * max_gen_batches
        self._seed = seed
        self._head_start = head_start

    def gather(self, step: int, num_drawn: int) -> Gathered:
        """The groups of a step; with `replace`, in as many rounds as it takes, up to the cap.

        Args:
            step: Which.
            num_drawn: Draws that are used up.
        """
        groups: list[ScoredGroup] = []
        good = 0
        if self._head_start is not None:
            self._head_start.begin(step)
        for round_number in range(self._most):
            count = self._size_round(len(groups), good)
            problems, num_drawn = self._sampler.take(num_drawn, count, self._accept)
            again = (round_number,) if round_number else ()
            fresh = self._collector.collect(
                problems,
                self._sampling,
                group_size=self._group_size,
                seed_parts=(self._seed, step, *again),
                on_group=self._head_start.add if self._head_start is not None else None,
            )
            good += sum(group_teaches(group, self._estimator) for group in fresh)
            groups += fresh
            if not self._replace or good >= self._wanted or len(groups) >= self._most:
                break
        short = self._replace and good < self._wanted
        return Gathered(
            step=step,
            groups=tuple(groups),
            surplus=self._count_surplus(groups),
            num_drawn=num_drawn,
            remark=self._describe_cap(groups, good) if short else None,
        )

    def _count_surplus(self, groups: list[ScoredGroup]) -> int:
        return count_surplus(groups, self._wanted, self._estimator) if self._replace else 0

    def _size_round(self, num_sampled: int, num_good: int) -> int:
        """Problems to draw now, so that as many as are missing should have a signal."""
        if not self._replace:
            return self._wanted
        missing = self._wanted - num_good
        # Where nothing had a signal lately, the cap says how far to go.
        expected = math.ceil(missing / max(self._ledger.keep_rate, 1e-6))
        return min(max(missing, expected), self._most - num_sampled)

    def _describe_cap(self, groups: list[ScoredGroup], num_good: int) -> str:
        names: dict[str, list[str]] = {"too easy": [], "too hard": [], "not verified": []}
        for group in groups:
            if group_teaches(group, self._estimator):
                continue
            if not group.rewards:
                kind = "not verified"
            else:
                kind = "too easy" if max(group.rewards) > 0 else "too hard"
            names[kind].append(group.problem.id)
        found = "; ".join(f"{kind}: {', '.join(ids)}" for kind, ids in names.items() if ids)
        return (
            f"{num_good} of {self._wanted} wanted groups have a signal after {len(groups)} problems"
            f" (max_gen_batches); the step learns from those. {found}"
        )
