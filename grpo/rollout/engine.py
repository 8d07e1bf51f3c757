"""The Ray actor around one engine: requests in, finished rollouts out, weights in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from grpo.rollout.engine_loop import EngineLoop
from grpo.rollout.errors import WeightsRefused
from grpo.rollout.options import EngineOptions
from grpo.rollout.protocol import Completion, Engine, EngineFacts, Report
from grpo.rollout.transports import open_payload
from grpo.rollout.weights import DEVICE_TRANSPORTS, PackBuffer, WeightPayload
from grpo.values import Rollout, RolloutRequest, SamplingOptions, WeightPush
from verifiers.vitals import describe_threads, read_vitals

BuildEngine = Callable[[EngineOptions, int], Engine]


def build_vllm_engine(options: EngineOptions, policy_version: int) -> Engine:
    """Build the real thing; vLLM is imported here and not before."""
    from grpo.rollout.vllm_adapter import VllmEngine

    return VllmEngine(options, policy_version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A group that was given to an engine.

    Attributes:
        index: Its place in the call it belongs to; request ids are made of it.
        request: The group.
        members: The members to sample: all, or those that an engine which died still owed.
    """

    index: int
    request: RolloutRequest
    members: tuple[int, ...]


class EngineActor:
    """One engine and its thread. Methods may be called from several of Ray's threads at once.

    Args:
        options: As `resolve_options` returns them.
        policy_version: Version of the policy that `options.model` holds.
        build: Makes the engine.
    """

    def __init__(self, options: EngineOptions, policy_version: int, build: BuildEngine) -> None:
        self._loop = EngineLoop(lambda: build(options, policy_version))
        self._requests: dict[str, dict[int, RolloutRequest]] = {}
        self._num_scored = 0
        self._num_drawn = 0
        self._last: tuple[int, ...] = ()
        # Kept between pushes: memory that is new costs more than what fills it.
        self._received = PackBuffer()

    def wait_ready(self) -> EngineFacts:
        """Wait until the engine is up.

        Raises:
            EngineFailed: It could not start; the cause is chained.
            UserError: What it was asked to load or to run on is not there.
        """
        return self._loop.call(lambda engine: engine.facts)

    def submit(self, call: str, groups: Sequence[Placed], sampling: SamplingOptions) -> None:
        """Queue completions of some groups.

        Args:
            call: The call of `generate` they belong to.
            groups: What to sample.
            sampling: How.
        """
        self._requests.setdefault(call, {}).update({g.index: g.request for g in groups})
        self._loop.open_outbox(call)

        def add(engine: Engine) -> None:
            for group in groups:
                for member in group.members:
                    request_id = make_request_id(call, group.index, member)
                    seed = group.request.seeds[member]
                    engine.add_request(request_id, group.request.prompt_ids, seed, sampling)

        self._loop.call(add)

    def take(self, call: str, wait_s: float) -> Report:
        """The rollouts of a call that ended since the last time.

        Waits for a first one if there is none.

        Args:
            call: Which call.
            wait_s: Longest wait.

        Raises:
            EngineFailed: The engine failed, the cause is chained.
        """
        completions = self._loop.take(call, wait_s)
        requests = self._requests.get(call)
        rollouts: list[tuple[int, Rollout]] = []
        # A call that was cancelled meanwhile has no requests any more, and nobody reads this
        # answer.
        if completions and requests is not None:
            texts = self._loop.engine.decode([c.token_ids for c in completions])
            for completion, text in zip(completions, texts, strict=True):
                index, member = parse_request_id(completion.request_id)
                rollouts.append((index, make_rollout(requests[index], member, completion, text)))
            index, last = rollouts[-1]
            # Where the completion ended the policy is sure of every token, and nothing would show.
            middle = len(last.completion_ids) // 2
            self._last = (*requests[index].prompt_ids, *last.completion_ids[:middle])
        return Report(rollouts=tuple(rollouts), progress=self._loop.progress, vitals=read_vitals())

    def describe_threads(self) -> str:
        """Where this process stands, for the report on an engine that hangs."""
        return describe_threads()

    def abort(self, call: str, indices: Collection[int]) -> None:
        """End the unfinished rollouts of some groups: they come out of `take` as `abort`."""
        ids = self._request_ids(call, indices)

        def abort(engine: Engine) -> None:
            self._loop.put([make_aborted(request_id) for request_id in engine.abort(ids)])

        self._loop.call(abort)

    def cancel(self, call: str) -> None:
        """Abort what is left of a call, and forget it."""
        ids = self._request_ids(call)
        self._loop.close_outbox(call)
        self._requests.pop(call, None)
        self._loop.call(lambda engine: engine.abort(ids))

    def load_weights(self, version: int, payload: WeightPayload) -> WeightPush:
        """Take a new policy, between two steps.

        Raises:
            WeightsRefused: It arrived damaged; the engine goes on with the policy it had.
            EngineFailed: The engine is lost.
        """
        started = time.monotonic()
        buffer = open_payload(payload, self._received.reserve)
        self._receive(version, payload, buffer)
        fetched = time.monotonic()
        checksum, pause_seconds = self._loop.load_weights(version, payload, buffer)
        return WeightPush(
            policy_version=version,
            checksum=checksum,
            seconds=time.monotonic() - started,
            fetch_seconds=fetched - started,
            pause_seconds=pause_seconds,
        )

    def _receive(self, version: int, payload: WeightPayload, buffer: np.ndarray) -> None:
        """See that all bytes are right before any is loaded; the engine steps meanwhile."""
        if payload.transport in DEVICE_TRANSPORTS:
            return  # these can be looked at only when they are loaded
        received = self._loop.engine.receive_weights(payload, buffer)
        if received != payload.checksum:
            raise WeightsRefused(
                f"The weights of policy version {version} were sent with checksum "
                f"{payload.checksum} and received with {received} over {payload.transport}. The "
                "engine still serves the version before."
            )

    def score(self, token_ids: Sequence[int], prompt_length: int) -> tuple[float, ...]:
        """Log-probabilities of given tokens under the policy that is served, at temperature 1.

        Args:
            token_ids: A prompt and a completion.
            prompt_length: Tokens of the prompt.

        Returns:
            One number for each token of the completion, in nats.
        """
        self._num_scored += 1
        request_id = f"score:{self._num_scored}"
        completion = self._loop.complete(
            request_id, lambda engine: engine.add_scoring(request_id, token_ids)
        )
        # The first prompt token has no log-probability, so token i is at place i - 1.
        return completion.prompt_logprobs[prompt_length - 1 :]

    def sleep(self) -> bool:
        """As `Engine.sleep`."""
        return self._loop.call(lambda engine: engine.sleep())

    def wake(self) -> None:
        """As `Engine.wake`."""
        self._loop.call(lambda engine: engine.wake())

    def draw(self, version: int, first_prompt: Sequence[int], sampling: SamplingOptions) -> Rollout:
        """Go on from the middle of what this engine sampled last, whose KV cache it may still have.

        Args:
            version: Of the policy; the seed.
            first_prompt: What to go on from before anything was sampled.
            sampling: How, and how far.

        Returns:
            A rollout that belongs to no problem.
        """
        self._num_drawn += 1
        request_id = f"draw:{self._num_drawn}"
        room = self._loop.engine.facts.max_model_len - sampling.max_completion_length
        prompt_ids = tuple((self._last or first_prompt)[:room])
        request = RolloutRequest(problem_id="draw", prompt_ids=prompt_ids, seeds=(version,))
        completion = self._loop.complete(
            request_id,
            lambda engine: engine.add_request(request_id, prompt_ids, version, sampling),
        )
        return make_rollout(request, 0, completion, "")

    def close(self) -> None:
        """Stop the engine, and give back its processes, memory and files."""
        self._loop.stop()

    def _request_ids(self, call: str, indices: Collection[int] | None = None) -> list[str]:
        requests = self._requests.get(call, {})
        return [
            make_request_id(call, index, member)
            for index, request in requests.items()
            if indices is None or index in indices
            for member in range(len(request.seeds))
        ]


def make_request_id(call: str, index: int, member: int) -> str:
    """Name one completion of a call."""
    return f"{call}:{index}:{member}"


def parse_request_id(request_id: str) -> tuple[int, int]:
    """The place of the group in its call, and of the member in its group."""
    _, index, member = request_id.split(":")
    return int(index), int(member)


def make_aborted(request_id: str) -> Completion:
    """What stands for a completion that was aborted; its tokens are lost."""
    return Completion(
        request_id=request_id, token_ids=(), logprobs=(), policy_versions=(), finish_reason="abort"
    )


def make_rollout(
    request: RolloutRequest, member: int, completion: Completion, text: str
) -> Rollout:
    """Put a completion and the request it answers together."""
    return Rollout(
        problem_id=request.problem_id,
        member=member,
        prompt_ids=request.prompt_ids,
        completion_ids=completion.token_ids,
        logprobs=completion.logprobs,
        text=text,
        finish_reason=completion.finish_reason,
        policy_versions=completion.policy_versions,
        seed=request.seeds[member],
    )
