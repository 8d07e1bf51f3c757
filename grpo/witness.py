"""What engines draw right after a push, held against the policy that they were given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from grpo.learner.guard import Guard
from grpo.learner.invariants import InvariantBroken, LogprobBound
from grpo.values import Rollout, SamplingOptions

NUM_TOKENS = 16


class Scorer(Protocol):
    """Who has the policy."""

    def score(
        self,
        completions: Sequence[tuple[Sequence[int], Sequence[int]]],
        *,
        temperature: float,
    ) -> Sequence[Sequence[float]]:
        """Log-probabilities in nats of completions given with their prompts."""
        ...


class DrawingEngines(Protocol):
    """Who samples from it."""

    def begin_draws(self, first_prompt: Sequence[int], sampling: SamplingOptions) -> Any:
        """Have every engine go on from what it sampled last."""
        ...

    def finish_draws(
        self, draws: Any, on_wait: Callable[[], None]
    ) -> Sequence[tuple[str, Rollout]]:
        """What was begun, with the names of the engines."""
        ...


class SamplerWitness:
    """Compares a few tokens of each engine with the learner's policy of the same version.

    An update checks the samples of the version that it starts from. With `max_staleness` a batch
    need not hold any, and a policy that is served well but sampled wrongly (another temperature, a
    prefix cache that outlived the push) would go unseen.

    Args:
        scorer: The learner.
        engines: The rollout pool.
        sampling: How rollouts are drawn.
        bound: How far rounding takes the two apart.
        guard: Stops at a breach, or keeps it.
    """

    def __init__(
        self,
        *,
        scorer: Scorer,
        engines: DrawingEngines,
        sampling: SamplingOptions,
        bound: LogprobBound,
        guard: Guard,
    ) -> None:
        self._scorer = scorer
        self._engines = engines
        self._sampling = replace(sampling, max_completion_length=NUM_TOKENS, stop_token_ids=())
        self._bound = bound
        self._guard = guard
        self._draws: Any = None

    def begin(self, first_prompt: Sequence[int]) -> None:
        """Have the engines draw, after a push; nobody waits for them yet.

        Args:
            first_prompt: What an engine goes on from that has sampled nothing yet.
        """
        self._draws = self._engines.begin_draws(first_prompt, self._sampling)

    def confirm(self, on_wait: Callable[[], None] = lambda: None) -> list[str]:
        """Compare what was drawn, while the learner still has the policy that was pushed.

        Args:
            on_wait: Called while engines do not answer; may raise, and they are not waited for.

        Returns:
            Breaches that do not stop the run.

        Raises:
            InvariantBroken: An engine does not draw from the policy that it was given.
        """
        draws, self._draws = self._draws, None
        if draws is None:
            return []
        drawn = self._engines.finish_draws(draws, on_wait)
        expected = self._scorer.score(
            [(rollout.prompt_ids, rollout.completion_ids) for _, rollout in drawn],
            temperature=self._sampling.temperature,
        )
        for (name, rollout), logprobs in zip(drawn, expected, strict=True):
            with self._guard:
                self._compare(name, rollout.logprobs, logprobs)
        return self._guard.take()

    def _compare(self, name: str, drawn: Sequence[float], expected: Sequence[float]) -> None:
        pairs = zip(drawn, expected, strict=True)
        difference = sum(abs(one - other) for one, other in pairs) / len(drawn)
        # A NaN is a breach too, so the comparison is for what is allowed.
        allowed = self._bound.allow(len(drawn))
        if not difference <= allowed:
            raise InvariantBroken(
                "sampler_logprobs",
                f"what {name} draws is not of the policy that it was given: the log-probabilities "
                f"of {len(drawn)} tokens differ by {difference:.3g} on average, at most "
                f"{allowed:.3g} is allowed. It samples at another temperature, or kept "
                "a prefix cache of the policy before.",
            )
