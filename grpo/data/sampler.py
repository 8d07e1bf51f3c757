"""Which problems a step draws: a function of the seed and the step, with nothing to remember."""

from __future__ import annotations

from collections.abc import Sequence

from grpo.seeding import make_random
from verifiers.problem import Problem


class ProblemSampler:
    """Draws the problems of a step from several sets, by weight.

    Each set is walked in a new order every epoch. The draws of step s depend on the seed and on s
    alone, so a resumed run continues exactly.

    Args:
        sets: The problems of each set.
        weights: Share of each set; need not add up to one.
        prompts_per_step: How many problems a step draws.
        seed: The run's seed.
    """

    def __init__(
        self,
        *,
        sets: Sequence[Sequence[Problem]],
        weights: Sequence[float],
        prompts_per_step: int,
        seed: int,
    ) -> None:
        assert len(sets) == len(weights)
        assert all(sets)
        self._sets = [tuple(problems) for problems in sets]
        self._weights = [weight / sum(weights) for weight in weights]
        self._prompts_per_step = prompts_per_step
        self._seed = seed
        self._history = [(0,) * len(self._sets)]
        self._orders: dict[tuple[int, int], list[int]] = {}

    def draw(self, step: int) -> tuple[Problem, ...]:
        """The problems of a step, in a fixed order; an epoch's end may bring one of them twice.

        Args:
            step: From 1.
        """
        before, after = self._counts_after(step - 1), self._counts_after(step)
        return tuple(
            self._problem(index, position)
            for index in range(len(self._sets))
            for position in range(before[index], after[index])
        )

    def _counts_after(self, step: int) -> tuple[int, ...]:
        """Problems drawn from each set in all steps up to this one.

        Every draw goes to the set that is furthest behind its share, so the shares are exact over
        time.
        """
        while len(self._history) <= step:
            counts = list(self._history[-1])
            for _ in range(self._prompts_per_step):
                total = sum(counts) + 1
                behind = [
                    total * weight - count
                    for weight, count in zip(self._weights, counts, strict=True)
                ]
                counts[behind.index(max(behind))] += 1
            self._history.append(tuple(counts))
        return self._history[step]

    def _problem(self, index: int, position: int) -> Problem:
        problems = self._sets[index]
        epoch, place = divmod(position, len(problems))
        return problems[self._order(index, epoch, len(problems))[place]]

    def _order(self, index: int, epoch: int, size: int) -> list[int]:
        if (index, epoch) not in self._orders:
            order = list(range(size))
            make_random(self._seed, "sampler", index, epoch).shuffle(order)
            self._orders[index, epoch] = order
        return self._orders[index, epoch]
