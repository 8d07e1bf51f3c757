"""Puts the learner's weights into the engines, and proves that they landed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from grpo.learner.invariants import InvariantBroken, LogprobBound
from grpo.rollout.errors import WeightPushFailed
from grpo.rollout.weights import WeightPayload
from grpo.stopping import StopRequested
from grpo.values import WeightPush
from grpo.witness import SamplerWitness


class WeightSource(Protocol):
    """Who has the weights."""

    def publish(self, version: int) -> WeightPayload:
        """Pack the current weights, as the policy of this version."""
        ...

    def score(
        self,
        completions: Sequence[tuple[Sequence[int], Sequence[int]]],
        *,
        temperature: float,
    ) -> Sequence[Sequence[float]]:
        """Log-probabilities in nats of completions given with their prompts."""
        ...


class Engines(Protocol):
    """Who serves them."""

    def forget_weights(self) -> None:
        """Let go of the bytes of the push before."""
        ...

    def publish(
        self, version: int, payload: WeightPayload, on_wait: Callable[[], None]
    ) -> Sequence[WeightPush]:
        """Load weights into every engine."""
        ...

    def score(
        self, token_ids: Sequence[int], prompt_length: int, on_wait: Callable[[], None]
    ) -> Sequence[Sequence[float]]:
        """Log-probabilities at temperature 1 of all tokens after the prompt, from each engine."""
        ...


class ProvingPublisher:
    """Pushes weights, and compares log-probabilities of a known text on both sides afterwards.

    Tokens are no proof: a policy with one stale layer can still agree on nearly every greedy token.

    Args:
        source: The learner.
        engines: The rollout pool.
        bound: How far rounding takes the two sides apart.
        witness: Watches what is sampled, where no update does.
    """

    def __init__(
        self,
        *,
        source: WeightSource,
        engines: Engines,
        bound: LogprobBound,
        witness: SamplerWitness | None = None,
    ) -> None:
        self._source = source
        self._engines = engines
        self._bound = bound
        self._witness = witness

    def publish(
        self,
        policy_version: int,
        probe: Sequence[int],
        on_wait: Callable[[], None] = lambda: None,
    ) -> Mapping[str, float]:
        """Push the learner's weights and prove that every engine serves them.

        Args:
            policy_version: That the engines serve from now on.
            probe: Token ids to compare log-probabilities on.
            on_wait: Called while engines do not answer. They are left out once it raises
                `StopRequested`: they end with the run, and the step is worth having.

        Returns:
            What it cost; nothing where they were left out.

        Raises:
            InvariantBroken: An engine does not serve the learner's policy.
            LearnerLost: The learner died before every engine had its weights.
            WeightPushFailed: An engine did not take them.
        """
        try:
            return self._push(policy_version, probe, on_wait)
        except StopRequested:
            return {}

    def confirm(self, on_wait: Callable[[], None] = lambda: None) -> list[str]:
        """See that what was sampled since the push is of the policy that the learner still has.

        Args:
            on_wait: As for `publish`.

        Returns:
            Breaches that do not stop the run.

        Raises:
            InvariantBroken: It is not.
        """
        if self._witness is None:
            return []
        try:
            return self._witness.confirm(on_wait)
        except StopRequested:
            return []

    def _push(
        self, policy_version: int, probe: Sequence[int], on_wait: Callable[[], None]
    ) -> Mapping[str, float]:
        # Otherwise two copies of the policy lie in memory while the new one is packed.
        self._engines.forget_weights()
        started = time.perf_counter()
        payload = self._source.publish(policy_version)
        packed = time.perf_counter()
        try:
            pushes = self._engines.publish(policy_version, payload, on_wait)
        except WeightPushFailed:
            # Should the learner have died with the bytes, this names it, and it can be restarted.
            self._source.score([(probe[:1], probe[1:])], temperature=1.0)
            raise
        seconds = time.perf_counter() - started
        difference = self.prove(probe, on_wait)
        if self._witness is not None:
            self._witness.begin(probe)
        return {
            "push/megabytes": payload.num_bytes / 1e6,
            "push/seconds": seconds,
            "push/gigabytes_per_second": payload.num_bytes / 1e9 / seconds,
            "push/pack_seconds": packed - started,
            "push/engine_seconds": max(push.seconds for push in pushes),
            "push/fetch_seconds": max(push.fetch_seconds for push in pushes),
            "push/pause_seconds": max(push.pause_seconds for push in pushes),
            "push/probe_logprob_difference": difference,
        }

    def prove(self, probe: Sequence[int], on_wait: Callable[[], None] = lambda: None) -> float:
        """Compare log-probabilities of a known text, of every token but the first.

        Args:
            probe: Its token ids, at least two.
            on_wait: As for `publish`.

        Returns:
            The mean absolute difference of the engine that is furthest off, in nats.

        Raises:
            InvariantBroken: It is more than rounding explains.
        """
        (expected,) = self._source.score([(probe[:1], probe[1:])], temperature=1.0)
        allowed, worst = self._bound.allow(len(expected)), 0.0
        for index, found in enumerate(self._engines.score(probe, 1, on_wait)):
            difference = _mean_difference(expected, found)
            # A NaN is a breach too, so the comparison is for what is allowed.
            if not difference <= allowed:
                raise InvariantBroken(
                    "weights_landed",
                    f"engine {index} does not serve the learner's policy: its log-probabilities of "
                    f"a known text are off by {difference:.3g} on average, and "
                    f"{allowed:.3g} is the most that rounding explains. The weights "
                    "did not land whole, or the two sides compute differently (dtype, attention).",
                )
            worst = max(worst, difference)
        return worst


def _mean_difference(expected: Sequence[float], found: Sequence[float]) -> float:
    pairs = zip(expected, found, strict=True)
    return sum(abs(ours - theirs) for ours, theirs in pairs) / len(expected)
