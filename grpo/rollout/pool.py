"""The pool of engines: the one thing that the loop knows of the rollout side."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray

from grpo.rollout.engine import BuildEngine, EngineActor, build_vllm_engine
from grpo.rollout.errors import RolloutError
from grpo.rollout.handles import EngineHandle
from grpo.rollout.options import (
    EngineOptions,
    available_cores,
    engine_environment,
    resolve_options,
)
from grpo.rollout.protocol import EngineFacts
from grpo.rollout.routing import Load, Router
from grpo.rollout.slot import State
from grpo.rollout.stream import RolloutStream
from grpo.rollout.supervisor import Supervisor
from grpo.rollout.vllm_version import require_vllm
from grpo.rollout.weights import WeightPayload
from grpo.timing import Timeline
from grpo.values import Rollout, RolloutRequest, SamplingOptions, WeightPush
from verifiers.errors import UserError
from verifiers.incident import NoteIncident, ignore_incident

# Threads of an actor: every call of `generate` that is being consumed holds one, and pushes and
# probes come beside.
ACTOR_THREADS = 16
# A running engine is given up to this many times what it can run at once; see `Router`.
FEED_AHEAD = 2


def _no_options(_: int) -> Mapping[str, Any]:
    return {}


def _anywhere(_: int) -> bool:
    return True


class RolloutPool:
    """Several engines behind one `generate`. Needs a Ray that is initialised.

    An engine that dies, fails or hangs is replaced; what it had not finished is sampled again, with
    the same seeds.

    Args:
        options: Of every engine.
        num_engines: How many.
        policy_version: Version of the policy that `options.model` holds.
        start_timeout_s: Longest time until the engines are up.
        stall_timeout_s: Longest time in which an engine may get nothing done.
        push_timeout_s: Longest time for a push of weights.
        max_restarts: Restarts of one engine within an hour; then the pool goes on without it.
        note: Told what was lost, and what was done about it.
        timeline: Told when each engine worked; None keeps no record.
        actor_options: Ray's options for the actor of each engine, such as `scheduling_strategy`.
        has_place: Whether there is a node for an engine; one without waits, and the pool goes on
            without it.
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
        max_restarts: int = 3,
        note: NoteIncident = ignore_incident,
        timeline: Timeline | None = None,
        actor_options: Callable[[int], Mapping[str, Any]] = _no_options,
        has_place: Callable[[int], bool] = _anywhere,
        build_engine: BuildEngine = build_vllm_engine,
    ) -> None:
        self._options = resolve_options(
            options, num_cores=available_cores(), num_engines=num_engines
        )
        self._stall_timeout_s = stall_timeout_s
        self._note = note
        self._timeline = timeline
        self._actor_options = actor_options
        self._build_engine = build_engine
        self._start_version = policy_version
        self._load = Load(num_engines)
        self._engines = Supervisor(
            num_engines=num_engines,
            spawn=self._spawn,
            has_place=has_place,
            policy_version=policy_version,
            start_timeout_s=start_timeout_s,
            push_timeout_s=push_timeout_s,
            max_restarts=max_restarts,
            note=note,
        )
        self._num_calls = 0

    @property
    def policy_version(self) -> int:
        """Version of the policy that every engine serves."""
        return self._engines.policy_version

    def start(self) -> None:
        """Start the engines without waiting for them.

        They need seconds, in which the caller can do other things.

        Raises:
            UserError: vLLM is missing, or of a version that this project does not know.
        """
        assert not self._engines.started, "start() is called once"
        if self._build_engine is build_vllm_engine:
            require_vllm()
        self._engines.start()

    def wait_ready(self) -> tuple[EngineFacts, ...]:
        """Wait until every engine is up. Later calls return at once.

        Returns:
            What each engine turned out to be.

        Raises:
            RolloutError: An engine died, failed or did not start in time.
            UserError: The model or the device is not what the engine needs.
        """
        return self._engines.wait_ready()

    def generate(
        self,
        requests: Sequence[RolloutRequest],
        sampling: SamplingOptions,
        on_wait: Callable[[], None] = lambda: None,
    ) -> RolloutStream:
        """Sample groups of completions.

        The engines start on them at once, before anything is iterated over.

        Args:
            requests: The groups.
            sampling: How all of them are sampled.
            on_wait: Called several times a second while whoever iterates waits; may raise.

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
            router=Router(
                self._load, FEED_AHEAD * min(facts.max_num_seqs for facts in self.wait_ready())
            ),
            num_engines=len(self._load),
            requests=requests,
            sampling=sampling,
            stall_timeout_s=self._stall_timeout_s,
            note=self._note,
            timeline=self._timeline or Timeline(),
            on_wait=on_wait,
        )

    def publish(
        self, version: int, payload: WeightPayload, on_wait: Callable[[], None] = lambda: None
    ) -> list[WeightPush]:
        """Make every engine serve new weights. Rollouts in flight go on under the new policy.

        Args:
            version: Of the policy; every token drawn from now on carries it.
            payload: What a `WeightSender` made of the learner's weights.
            on_wait: Called while engines do not answer; may raise, and they are not waited for.

        Returns:
            The answers of the engines that serve them now. One that is being replaced gets them as
            soon as it is up, and no request before.

        Raises:
            WeightPushFailed: An engine did not take them, or received other bytes than were sent.
            RolloutError: No engine is left.
        """
        self.wait_ready()
        return self._engines.publish(version, payload, on_wait)

    def forget_weights(self) -> None:
        """Let go of the last push's bytes, which are kept for engines that are replaced."""
        self._engines.forget_weights()

    def score(
        self,
        token_ids: Sequence[int],
        prompt_length: int,
        on_wait: Callable[[], None] = lambda: None,
    ) -> list[tuple[float, ...]]:
        """Log-probabilities of given tokens, from every engine: the proof that a push landed.

        They are at temperature 1 whatever rollouts are sampled with, and computed without the
        prefix cache.

        Args:
            token_ids: A prompt and a completion.
            prompt_length: Tokens of the prompt, at least 1.
            on_wait: As for `publish`.

        Returns:
            For each engine that serves, one number for each token of the completion, in nats.
        """
        if not 1 <= prompt_length < len(token_ids):
            raise UserError(
                f"A probe needs a prompt and a completion: prompt_length={prompt_length} of "
                f"{len(token_ids)} tokens."
            )
        self.wait_ready()
        scores: list[tuple[float, ...]] = []
        while not scores:
            self._engines.wait_for_one(on_wait)
            asked = self._ask("score", tuple(token_ids), prompt_length)
            scores = [answer for _, answer in self._collect(asked, "scoring", on_wait)]
        return scores

    def sleep(self) -> bool:
        """Have every engine give its memory back; no `generate` may be under way.

        One that starts is waited for, and none starts until `wake`: all its memory is another's.

        Returns:
            Whether all of them keep their weights; otherwise they must be pushed anew.
        """
        self._engines.hold_starts()
        kept = self._collect(self._ask("sleep", states=("up",)), "falling asleep")
        return all(keeps for _, keeps in kept)

    def wake(self) -> None:
        """Have every engine take its memory again."""
        self._collect(self._ask("wake", states=("up",)), "waking up")
        self._engines.let_start()

    def begin_draws(
        self, first_prompt: Sequence[int], sampling: SamplingOptions
    ) -> list[tuple[EngineHandle, Any]]:
        """Have every engine go on from what it sampled last, beside what it does.

        Args:
            first_prompt: What one goes on from that has sampled nothing yet.
            sampling: How, and how far.

        Returns:
            What `finish_draws` takes.
        """
        return self._ask("draw", self.policy_version, tuple(first_prompt), sampling)

    def finish_draws(
        self, draws: Sequence[tuple[EngineHandle, Any]], on_wait: Callable[[], None] = lambda: None
    ) -> list[tuple[str, Rollout]]:
        """The rollouts that were begun, with the names of their engines.

        An engine that failed since has none.
        """
        drawn = self._collect(draws, "drawing", on_wait)
        return [(engine.name, rollout) for engine, rollout in drawn]

    def close(self, timeout_s: float = 45.0) -> None:
        """Stop the engines and their processes. Calling it twice is harmless.

        Args:
            timeout_s: How long each engine may take to finish its step and clean up, before it is
                killed.
        """
        self._engines.close(timeout_s)

    def _ask(
        self, method: str, *arguments: Any, states: Sequence[State] = ()
    ) -> list[tuple[EngineHandle, Any]]:
        """Call a method of every engine that serves; nobody waits for the answers yet."""
        return [
            (engine, getattr(engine.actor, method).remote(*arguments))
            for engine in self._engines.serving(*states).values()
        ]

    def _collect(
        self,
        asked: Sequence[tuple[EngineHandle, Any]],
        doing: str,
        on_wait: Callable[[], None] = lambda: None,
    ) -> list[tuple[EngineHandle, Any]]:
        """The answers of engines that were asked; one that fails is replaced and has none."""
        answers: list[tuple[EngineHandle, Any]] = []
        for engine, reference in asked:
            self._engines.doubt(engine.index)  # until it answers
            try:
                answer = engine.get(
                    reference, timeout_s=self._stall_timeout_s, doing=doing, on_wait=on_wait
                )
            except RolloutError as error:
                self._engines.replace(engine, error)
            else:
                self._engines.doubt(engine.index, doubted=False)
                answers.append((engine, answer))
        return answers

    def _spawn(self, index: int) -> Any:
        actor_options = {
            # Ray's own default would keep a core for each engine, on machines that have two.
            "num_cpus": 0,
            "num_gpus": self._options.num_gpus,
            "max_concurrency": ACTOR_THREADS,
            "runtime_env": {"env_vars": engine_environment(self._options, os.environ)},
            **self._actor_options(index),
        }
        remote = ray.remote(EngineActor).options(**actor_options)
        return remote.remote(self._options, self._start_version, self._build_engine)

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
