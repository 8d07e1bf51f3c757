"""What an engine is to the rest of the rollout side, so that tests can play vLLM's part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from grpo.rollout.weights import WeightPayload
from grpo.values import FinishReason, Rollout, SamplingOptions
from verifiers.vitals import Vitals


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """What an engine turned out to be, once it is up.

    Attributes:
        version: Of vLLM.
        model_runner: Which of vLLM's two model runners computes.
        device: Kind of device it computes on.
        dtype: Of the weights.
        max_model_len: Longest prompt and completion together, in tokens.
        max_num_seqs: Completions that are worked on at a time.
        num_kv_cache_tokens: Tokens that the KV cache holds; 0 where vLLM does not say.
        start_seconds: Wall seconds from the actor's start until it could generate, the imports
            included.
    """

    version: str
    model_runner: Literal["V1", "V2"]
    device: str
    dtype: str
    max_model_len: int
    max_num_seqs: int
    num_kv_cache_tokens: int
    start_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What an engine says at the end of one request.

    Attributes:
        request_id: As given to `add_request` or `add_scoring`.
        token_ids: The completion, the stop token included.
        logprobs: Of each token, under the distribution it was drawn from.
        policy_versions: Of each token.
        finish_reason: Why it ended.
        prompt_logprobs: For a scoring request: of every prompt token but the first, untempered.
    """

    request_id: str
    token_ids: Sequence[int]
    logprobs: Sequence[float]
    policy_versions: Sequence[int]
    finish_reason: FinishReason
    prompt_logprobs: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What an engine's actor says about one call of `generate`.

    Attributes:
        rollouts: Those that ended since the last report, each with the place of its group in the
            call.
        progress: A number that changes whenever the engine got anything done.
        vitals: Of its process.
    """

    rollouts: tuple[tuple[int, Rollout], ...]
    progress: int
    vitals: Vitals


class Engine(Protocol):
    """An engine that one thread steps.

    Only `decode` and `receive_weights` may be called from another one.
    """

    @property
    def facts(self) -> EngineFacts:
        """What it is."""
        ...

    @property
    def num_unfinished(self) -> int:
        """Requests that have not ended."""
        ...

    @property
    def num_generated(self) -> int:
        """Tokens that unfinished requests have so far: it changes, or the engine is stuck."""
        ...

    def add_request(
        self, request_id: str, prompt_ids: Sequence[int], seed: int, sampling: SamplingOptions
    ) -> None:
        """Queue one completion."""
        ...

    def add_scoring(self, request_id: str, token_ids: Sequence[int]) -> None:
        """Queue a request for the log-probabilities of given tokens."""
        ...

    def abort(self, request_ids: Sequence[str]) -> list[str]:
        """Forget requests; they give no completion any more.

        Returns:
            The ids among them that had not ended.
        """
        ...

    def step(self) -> list[Completion]:
        """Advance every running request, and return those that ended."""
        ...

    def decode(self, completions: Sequence[Sequence[int]]) -> list[str]:
        """Turn completions into text, special tokens removed."""
        ...

    def receive_weights(self, payload: WeightPayload, buffer: np.ndarray) -> str:
        """Get ready to serve the weights of a push, as far as that goes while the engine steps.

        Args:
            payload: Of a transport through the host's memory.
            buffer: The payload's bytes.

        Returns:
            The checksum of the bytes that `load_weights` would load.

        Raises:
            WeightsRefused: They do not fit; the old policy is untouched.
        """
        ...

    def load_weights(self, version: int, payload: WeightPayload, buffer: np.ndarray) -> str:
        """Replace the policy between two steps.

        Bytes in the host's memory have been through `receive_weights`, and were the right ones.

        Requests in flight go on under the new policy; what the old one had cached of them is
        computed again, so that each later token is exactly the new policy's.

        Args:
            version: Of the new policy, which every later token is stamped with.
            payload: Names, shapes and checksum.
            buffer: The payload's bytes.

        Returns:
            The checksum of what was loaded.

        Raises:
            WeightsRefused: The weights cannot be had; the old policy is untouched. After any other
                exception the engine is of no more use.
        """
        ...

    def sleep(self) -> bool:
        """Give the memory of weights and KV cache back; no request may be under way.

        Returns:
            Whether the weights are kept in the host's memory meanwhile; without room for them there
            they must be pushed anew after `wake`.
        """
        ...

    def wake(self) -> None:
        """Take the memory again."""
        ...

    def close(self) -> None:
        """Stop, and give back processes, memory and files."""
        ...
