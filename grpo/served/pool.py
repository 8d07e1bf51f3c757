"""A served model as a pool: groups of requests in, rollouts out, as from engines of our own."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from grpo.served.client import RequestFailed, ServedClient
from grpo.served.options import ServedOptions
from grpo.values import Rollout, RolloutRequest, SamplingOptions
from verifiers.problem import Message
from verifiers.verdict import Reason

_WAIT_S = 0.2
_MAX_SEED = 2**63 - 1


class ServedPool:
    """Samples completions over the API; needs no Ray.

    Args:
        options: Of the server.
        prompts: Each problem's prompt as the API takes it, by problem id: messages, text or, for
            `vllm`, nothing, since requests bring token ids.
    """

    def __init__(
        self, options: ServedOptions, prompts: Mapping[str, str | Sequence[Message]]
    ) -> None:
        self._options = options
        self._prompts = prompts
        self._client = ServedClient(options)
        self._failures: dict[tuple[str, int], tuple[Reason, str]] = {}

    def start(self) -> None:
        """See that the server can be used.

        Raises:
            UserError: It cannot.
        """
        self._client.check()

    def wait_ready(self) -> None:
        """Nothing: whoever started the server waited for it."""

    def explain(self, rollout: Rollout) -> tuple[Reason, str]:
        """Why a rollout ended with `abort`."""
        return self._failures[rollout.problem_id, rollout.member]

    def generate(
        self,
        requests: Sequence[RolloutRequest],
        sampling: SamplingOptions,
        on_wait: Callable[[], None] = lambda: None,
    ) -> Generator[Rollout, None, None]:
        """Rollouts in the order in which they end; one that was given up ends with `abort`.

        Args:
            requests: The groups.
            sampling: How all of them are sampled.
            on_wait: Called several times a second while nothing ends; may raise.
        """
        threads = ThreadPoolExecutor(max_workers=self._options.max_concurrency)
        try:
            running: set[Future[Rollout]] = set()
            for request in requests:
                for member in range(len(request.seeds)):
                    running.add(threads.submit(self._sample, request, member, sampling))
            while running:
                done, running = wait(running, timeout=_WAIT_S, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
                if not done:
                    on_wait()
        finally:
            threads.shutdown(wait=True, cancel_futures=True)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _sample(self, request: RolloutRequest, member: int, sampling: SamplingOptions) -> Rollout:
        seed = request.seeds[member]
        try:
            path, body = self._make_body(request, seed, sampling)
            reply = self._client.post(path, body, seed)
            return _read_reply(reply, request, member, sampling)
        except RequestFailed as error:
            self._failures[request.problem_id, member] = (error.reason, str(error))
            return _make_rollout(request, member, finish_reason="abort")

    def _make_body(
        self, request: RolloutRequest, seed: int, sampling: SamplingOptions
    ) -> tuple[str, dict[str, Any]]:
        body: dict[str, Any] = {
            "model": self._options.model,
            "max_tokens": sampling.max_completion_length,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": seed % _MAX_SEED,
        }
        # Not of OpenAI's own API, but of the servers that people run: sent only where asked for.
        if sampling.top_k > 0:
            body["top_k"] = sampling.top_k
        if sampling.min_p > 0:
            body["min_p"] = sampling.min_p
        match self._options.api:
            case "chat":
                return "chat/completions", body | {"messages": self._messages(request.problem_id)}
            case "completions":
                return "completions", body | {"prompt": self._prompts[request.problem_id]}
            case "vllm":
                return "completions", body | {
                    "prompt": list(request.prompt_ids),
                    "stop_token_ids": list(sampling.stop_token_ids),
                    "ignore_eos": True,
                    "return_token_ids": True,
                }

    def _messages(self, problem_id: str) -> list[dict[str, str]]:
        prompt = self._prompts[problem_id]
        if isinstance(prompt, str):
            return [{"role": "user", "content": prompt}]
        return [dict(message) for message in prompt]


def _read_reply(
    reply: Mapping[str, Any], request: RolloutRequest, member: int, sampling: SamplingOptions
) -> Rollout:
    """The completion in a reply.

    Raises:
        RequestFailed: There is none, or the server cut it off below the length that was asked for.
    """
    try:
        choice = reply["choices"][0]
        text = choice["message"]["content"] if "message" in choice else choice["text"]
        finish_reason = choice["finish_reason"]
    except (KeyError, IndexError, TypeError) as error:
        shown = str(reply)[:200]
        raise RequestFailed(Reason.BAD_REPLY, f"no completion in the reply: {shown}") from error
    if finish_reason not in ("stop", "length"):
        raise RequestFailed(Reason.BAD_REPLY, f"ended with finish_reason={finish_reason!r}")
    token_ids = tuple(choice.get("token_ids") or ())
    usage = reply.get("usage") or {}
    num_tokens = len(token_ids) or usage.get("completion_tokens")
    if finish_reason == "length" and num_tokens and num_tokens < sampling.max_completion_length:
        raise RequestFailed(
            Reason.CUT_SHORT,
            f"the server ended the completion after {num_tokens} of "
            f"{sampling.max_completion_length} tokens; its context may be too short",
        )
    return _make_rollout(
        request, member, finish_reason=finish_reason, text=text or "", token_ids=token_ids
    )


def _make_rollout(
    request: RolloutRequest,
    member: int,
    *,
    finish_reason: Any,
    text: str = "",
    token_ids: tuple[int, ...] = (),
) -> Rollout:
    return Rollout(
        problem_id=request.problem_id,
        member=member,
        prompt_ids=request.prompt_ids,
        completion_ids=token_ids,
        logprobs=(),
        text=text,
        finish_reason=finish_reason,
        policy_versions=(),
        seed=request.seeds[member],
    )
