"""The pool of engines: the one thing that the loop knows of the rollout side."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import ray

from grpo.rollout.engine import BuildEngine, EngineActor, build_vllm_engine
from grpo.rollout.errors import RolloutError, WeightPushFailed
from grpo.rollout.handles import EngineHandle
from grpo.rollout.options import (
    EngineOptions,
    available_cores,
    engine_environment,
    resolve_options,
)
from grpo.rollout.protocol import EngineFacts
from grpo.rollout.routing import Load, Router
from grpo.rollout.stream import RolloutStream
from grpo.rollout.vllm_version import require_vllm
from grpo.rollout.weights import WeightPayload
from grpo.values import RolloutRequest, SamplingOptions, WeightPush
from verifiers.errors import UserError

# Threads of an actor: every call of `generate` that is being consumed holds one, and pushes and
# probes come beside.
ACTOR_THREADS = 16
# A running engine is given up to this many times what it can run at once; see `Router`.
FEED_AHEAD = 2


class RolloutPool:
    """Several engines behind one `generate`. Needs a Ray that is initialised.

    Args:
        options: Of every engine.
        num_engines: How many.
        policy_version: Version of the policy that `options.model` holds.
        start_timeout_s: Longest time until the engines are up.
        stall_timeout_s: Longest time in which an engine may get nothing done.
        push_timeout_s: Longest time for a push of weights.
        actor_options: More options for Ray's actors, such as `num_cpus` or `scheduling_strategy`.
        build_engine: Makes the engine inside its actor.
    """

    def __init__(
        self,
        options: EngineOptions,
        *,
        num_engines: int = 1,
        policy_version: int = 0,
        start_timeout_s: float = 600.0,
        stall_timeout_s: float = 600.0,
        push_timeout_s: float = 600.0,
        actor_options: Mapping[str, Any] | None = None,
        build_engine: BuildEngine = build_vllm_engine,
    ) -> None:
        self._options = resolve_options(
            options, num_cores=available_cores(), num_engines=num_engines
        )
        self._num_engines = num_engines
        self._policy_version = policy_version
        self._start_timeout_s = start_timeout_s
        self._stall_timeout_s = stall_timeout_s
        self._push_timeout_s = push_timeout_s
        self._actor_options = dict(actor_options or {})
        self._build_engine = build_engine
        self._load = Load(num_engines)
        self._engines: list[EngineHandle] = []
        self._facts: tuple[EngineFacts, ...] = ()
        self._num_calls = 0

    @property
    def policy_version(self) -> int:
        """Version of the policy that every engine serves."""
        return self._policy_version

    def start(self) -> None:
        """Start the engines without waiting for them.

        They need seconds, in which the caller can do other things.

        Raises:
            UserError: vLLM is missing, or of a version that this project does not know.
        """
        assert not self._engines, "start() is called once"
        if self._build_engine is build_vllm_engine:
            require_vllm()
        actor_options = {
            # Ray's own default would keep a core for each engine, on machines that have two.
            "num_cpus": 0,
            "num_gpus": self._options.num_gpus,
            "max_concurrency": ACTOR_THREADS,
            "runtime_env": {"env_vars": engine_environment(self._options, os.environ)},
            **self._actor_options,
        }
        remote = ray.remote(EngineActor).options(**actor_options)
        self._engines = [
            EngineHandle(
                index=index,
                actor=remote.remote(self._options, self._policy_version, self._build_engine),
            )
            for index in range(self._num_engines)
        ]

    def wait_ready(self) -> tuple[EngineFacts, ...]:
        """Wait until every engine is up. Later calls return at once.

        Returns:
            What each engine turned out to be.

        Raises:
            RolloutError: An engine died, failed or did not start in time.
            UserError: The model or the device is not what the engine needs.
        """
        assert self._engines, "start() comes first"
        if not self._facts:
            references = [engine.actor.wait_ready.remote() for engine in self._engines]
            self._facts = tuple(
                engine.get(reference, timeout_s=self._start_timeout_s, doing="starting")
                for engine, reference in zip(self._engines, references, strict=True)
            )
        return self._facts

    def generate(
        self, requests: Sequence[RolloutRequest], sampling: SamplingOptions
    ) -> RolloutStream:
        """Sample groups of completions.

        The engines start on them at once, before anything is iterated over.

        Args:
            requests: The groups.
            sampling: How all of them are sampled.

        Returns:
            An iterator over the rollouts in the order in which they end. What each of them contains
            depends only on the policy, its prompt, its seed and `sampling`.

        Raises:
            UserError: A prompt leaves no room for its completion.
        """
        self._check_lengths(requests, sampling)
        self._num_calls += 1
        return RolloutStream(
            call=f"call-{self._num_calls}",
            engines=self._engines,
            router=Router(self._load, FEED_AHEAD * self._options.max_num_seqs),
            requests=requests,
            sampling=sampling,
            stall_timeout_s=self._stall_timeout_s,
        )

    def publish(self, version: int, payload: WeightPayload) -> list[WeightPush]:
        """Make every engine serve new weights. Rollouts in flight go on under the new policy.

        Args:
            version: Of the policy; every token drawn from now on carries it.
            payload: What a `WeightSender` made of the learner's weights.

        Returns:
            Each engine's answer.

        Raises:
            WeightPushFailed: An engine did not take them, or received other bytes than were sent.
            RolloutError: An engine died, failed or stalled.
        """
        self.wait_ready()
        references = [e.actor.load_weights.remote(version, payload) for e in self._engines]
        pushes = [
            engine.get(reference, timeout_s=self._push_timeout_s, doing="taking new weights")
            for engine, reference in zip(self._engines, references, strict=True)
        ]
        for engine, push in zip(self._engines, pushes, strict=True):
            if (push.policy_version, push.checksum) != (version, payload.checksum):
                raise WeightPushFailed(
                    f"{engine.name} answered a push of policy version {version}, checksum "
                    f"{payload.checksum}, with version {push.policy_version}, checksum "
                    f"{push.checksum}."
                )
        self._policy_version = version
        return pushes

    def score(self, token_ids: Sequence[int], prompt_length: int) -> list[tuple[float, ...]]:
        """Log-probabilities of given tokens, from every engine: the proof that a push landed.

        They are at temperature 1 whatever rollouts are sampled with, and computed without the
        prefix cache.

        Args:
            token_ids: A prompt and a completion.
            prompt_length: Tokens of the prompt, at least 1.

        Returns:
            For each engine, one number for each token of the completion, in nats.
        """
        if not 1 <= prompt_length < len(token_ids):
            raise UserError(
                f"A probe needs a prompt and a completion: prompt_length={prompt_length} of "
                f"{len(token_ids)} tokens."
            )
        self.wait_ready()
        references = [e.actor.score.remote(tuple(token_ids), prompt_length) for e in self._engines]
        return [
            engine.get(reference, timeout_s=self._stall_timeout_s, doing="scoring")
            for engine, reference in zip(self._engines, references, strict=True)
        ]

    def close(self, timeout_s: float = 45.0) -> None:
        """Stop the engines and their processes. Calling it twice is harmless.

        Args:
            timeout_s: How long each engine may take to finish its step and clean up, before it is
                killed.
        """
        engines, self._engines = self._engines, []
        references = [engine.actor.close.remote() for engine in engines]
        for engine, reference in zip(engines, references, strict=True):
            # An engine that is not up has nothing to clean, and only a kill interrupts it.
            patience_s = timeout_s if self._facts else 0.0
            try:
                engine.get(reference, timeout_s=patience_s, doing="closing")
            except RolloutError:
                # Dead, hung or still starting: there is nothing to wait for, and what made it so
                # was raised before.
                pass
            finally:
                ray.kill(engine.actor)

    def _check_lengths(self, requests: Sequence[RolloutRequest], sampling: SamplingOptions) -> None:
        limit = min(facts.max_model_len for facts in self.wait_ready())
        for request in requests:
            needed = len(request.prompt_ids) + sampling.max_completion_length
            if needed > limit:
                raise UserError(
                    f"Problem {request.problem_id!r} has {len(request.prompt_ids)} prompt tokens, "
                    f"and with max_completion_length={sampling.max_completion_length} that is "
                    f"{needed} tokens; the engines hold {limit}. Raise max_model_len or shorten "
                    "one of the two."
                )
