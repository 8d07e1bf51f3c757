"""Which problems a step draws: a function of the seed and of how many were drawn before."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from grpo.seeding import make_random
from verifiers.problem import Problem


def visit_all(_problem: Problem, _draw: int) -> bool:
    """Visit every problem whose turn has come."""
    return True


class ProblemSampler:
    """Draws the problems of a step from several sets, by weight.

    Each set is walked in a new order every epoch. A draw depends on the seed and on its number
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
        self._size = sum(map(len, self._sets))
        # Draws from each set, before each draw.
        self._history = [(0,) * len(self._sets)]
        self._orders: dict[tuple[int, int], list[int]] = {}

    def draw(self, step: int) -> tuple[Problem, ...]:
        """The problems of a step that visits each; an epoch's end may bring one of them twice.

        Args:
            step: From 1.
        """
        problems, _ = self.take((step - 1) * self._prompts_per_step, self._prompts_per_step)
        return problems

    def take(
        self, num_drawn: int, count: int, accept: Callable[[Problem, int], bool] = visit_all
    ) -> tuple[tuple[Problem, ...], int]:
        """The next problems.

        Args:
            num_drawn: Draws that are used up.
            count: How many problems.
            accept: Whether to visit a problem whose turn has come, at this draw; one that is not
                visited comes back an epoch later. Asked of every problem once at most, so that
                there always is an answer.

        Returns:
            The problems, and the draws that are used up now.
        """
        problems: list[Problem] = []
        passed_over = 0
        while len(problems) < count:
            index = self._set_of(num_drawn)
            problem = self._problem(index, self._history[num_drawn][index])
            if passed_over >= self._size or accept(problem, num_drawn):
                problems.append(problem)
            else:
                passed_over += 1
            num_drawn += 1
        return tuple(problems), num_drawn

    def _set_of(self, draw: int) -> int:
        """The set that a draw goes to.

        It is the one that is furthest behind its share, so the shares are exact over time.
        """
        while len(self._history) <= draw + 1:
            counts = list(self._history[-1])
            behind = [
                len(self._history) * weight - count
                for weight, count in zip(self._weights, counts, strict=True)
            ]
            counts[behind.index(max(behind))] += 1
            self._history.append(tuple(counts))
        before, after = self._history[draw], self._history[draw + 1]
        return next(i for i, count in enumerate(after) if count > before[i])

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
