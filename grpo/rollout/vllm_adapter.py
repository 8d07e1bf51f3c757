"""vLLM behind the `Engine` contract; only this file and `vllm_transfer` know its interfaces."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from grpo.rollout.errors import WeightPushFailed, WeightsRefused
from grpo.rollout.options import EngineOptions
from grpo.rollout.protocol import Completion, EngineFacts
from grpo.rollout.segments import OwnedSegment
from grpo.rollout.vllm_version import require_vllm
from grpo.rollout.weights import WeightPayload
from grpo.values import FinishReason, SamplingOptions
from verifiers.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm import RequestOutput, SamplingParams
    from vllm.engine.arg_utils import EngineArgs
    from vllm.logprobs import Logprob

TRANSFER_MODULE = "grpo.rollout.vllm_transfer"
# vLLM's own limit is 5 s, after which it kills its children; on a busy machine that is before they
# have removed their shared memory.
SHUTDOWN_TIMEOUT_S = 30.0


class VllmEngine:
    """One vLLM engine, stepped by its owner.

    Args:
        options: As `resolve_options` returns them.
        policy_version: Version of the policy that `options.model` holds.
    """

    def __init__(self, options: EngineOptions, policy_version: int) -> None:
        started = time.monotonic()
        version = require_vllm()
        # It would override kv_cache_memory_bytes, in whole GiB.
        os.environ.pop("VLLM_CPU_KVCACHE_SPACE", None)
        # Before vLLM has set its logging up, it already warns.
        logging.getLogger("vllm").setLevel(os.environ.get("VLLM_LOGGING_LEVEL", "ERROR"))
        # Seconds of work: not before the checks above have passed.
        from transformers import AutoTokenizer
        from vllm.platforms import current_platform
        from vllm.v1.engine.llm_engine import LLMEngine

        if current_platform.device_type != options.device:
            raise UserError(
                f"The engine is to run on {options.device}, but the vLLM that is installed is a "
                f"build for {current_platform.device_type or 'an unknown device'}. Install "
                "`verigrad[gpu]` or `verigrad[cpu]` to match the machine."
            )
        self._in_process = bool(options.in_process)
        self._engine = LLMEngine.from_engine_args(make_engine_args(options))
        self._engine.collective_rpc("remove_rendezvous_file")
        self._engine.collective_rpc("init_weight_transfer_engine", kwargs={"init_info": {}})
        self._engine.set_weight_version(str(policy_version))
        self._unfinished: set[str] = set()
        # Only for engines in child processes, which cannot read the caller's memory.
        self._segment = OwnedSegment()
        config = self._engine.vllm_config
        blocks = config.cache_config.num_gpu_blocks or 0
        self._facts = EngineFacts(
            version=version,
            device=options.device,
            dtype=str(config.model_config.dtype).removeprefix("torch."),
            max_model_len=config.model_config.max_model_len,
            num_kv_cache_tokens=blocks * config.cache_config.block_size,
            start_seconds=time.monotonic() - started,
        )

        # vLLM's own copy is left out so that nothing but token ids goes into it.
        self._tokenizer = AutoTokenizer.from_pretrained(options.model)

    @property
    def facts(self) -> EngineFacts:
        """As `Engine.facts`."""
        return self._facts

    @property
    def num_unfinished(self) -> int:
        """As `Engine.num_unfinished`."""
        return self._engine.get_num_unfinished_requests()

    @property
    def num_generated(self) -> int:
        """As `Engine.num_generated`."""
        states = self._engine.output_processor.request_states.values()
        return sum(state.detokenizer.num_output_tokens() for state in states if state.detokenizer)

    def add_request(
        self, request_id: str, prompt_ids: Sequence[int], seed: int, sampling: SamplingOptions
    ) -> None:
        """As `Engine.add_request`."""
        params = make_sampling_params(sampling, seed=seed)
        self._add(request_id, prompt_ids, params)

    def add_scoring(self, request_id: str, token_ids: Sequence[int]) -> None:
        """As `Engine.add_scoring`."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        params = SamplingParams(
            max_tokens=1,
            temperature=0.0,
            ignore_eos=True,
            logprobs=0,
            prompt_logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        self._add(request_id, token_ids, params)

    def abort(self, request_ids: Sequence[str]) -> list[str]:
        """As `Engine.abort`."""
        unfinished = [request_id for request_id in request_ids if request_id in self._unfinished]
        self._engine.abort_request(unfinished)
        self._unfinished.difference_update(unfinished)
        return unfinished

    def step(self) -> list[Completion]:
        """As `Engine.step`."""
        outputs = cast("list[RequestOutput]", self._engine.step())
        completions = [read_output(output) for output in outputs if output.finished]
        self._unfinished.difference_update(c.request_id for c in completions)
        return completions

    def _add(self, request_id: str, token_ids: Sequence[int], params: SamplingParams) -> None:
        self._engine.add_request(request_id, {"prompt_token_ids": list(token_ids)}, params)
        self._unfinished.add(request_id)

    def decode(self, completions: Sequence[Sequence[int]]) -> list[str]:
        """As `Engine.decode`."""
        return self._tokenizer.batch_decode(
            [list(ids) for ids in completions],
            skip_special_tokens=True,
            clean_up_tokenization_spaces=False,
        )

    def load_weights(self, version: int, payload: WeightPayload, buffer: np.ndarray) -> str:
        """As `Engine.load_weights`."""
        update = self._make_update(payload, buffer)
        checksums = self._engine.collective_rpc(
            "compute_received_checksum", kwargs={"update": update}
        )
        if wrong := [c for c in checksums if c != payload.checksum]:
            raise WeightsRefused(
                f"The weights of policy version {version} were sent with checksum "
                f"{payload.checksum} and received with {wrong[0]} over {payload.transport}. The "
                "engine still serves the version before."
            )
        with self._paused():
            self._engine.collective_rpc("start_weight_update")
            self._engine.collective_rpc("update_weights", kwargs={"update_info": update})
            self._engine.collective_rpc("finish_weight_update")
            self._drop_caches()
            self._engine.set_weight_version(str(version))
        return checksums[0]

    def close(self) -> None:
        """As `Engine.close`."""
        self._engine.engine_core.shutdown(timeout=SHUTDOWN_TIMEOUT_S)
        self._segment.close()

    def _make_update(self, payload: WeightPayload, buffer: np.ndarray) -> dict[str, Any]:
        source: np.ndarray | str = buffer
        if not self._in_process:
            self._segment.reserve(payload.num_bytes)[:] = buffer
            source = self._segment.name
        plan = [asdict(spec) for spec in payload.plan]
        return {"source": source, "num_bytes": payload.num_bytes, "plan": plan}

    @contextmanager
    def _paused(self) -> Iterator[None]:
        """Keep an engine that steps by itself from stepping on half-loaded weights."""
        if self._in_process:
            yield
            return
        core = cast("Any", self._engine.engine_core)
        core.call_utility("pause_scheduler", "keep", False)
        yield
        # Not in a `finally`: after a push that failed half-way no step may run.
        core.call_utility("resume_scheduler")

    def _drop_caches(self) -> None:
        # Running requests go back to the queue and are computed again: with their old KV cache,
        # every later token would be drawn from a mixture of two policies.
        if not self._engine.reset_prefix_cache(reset_running_requests=True):
            raise WeightPushFailed(
                "vLLM did not drop its prefix cache after taking new weights; it would serve the "
                "old policy's."
            )


def make_engine_args(options: EngineOptions) -> EngineArgs:
    """Translate our options into vLLM's."""
    from vllm.engine.arg_utils import EngineArgs

    chosen: dict[str, Any] = {
        "max_model_len": options.max_model_len,
        "max_num_batched_tokens": options.max_num_batched_tokens,
        "gpu_memory_utilization": options.gpu_memory_utilization,
        "block_size": options.block_size,
    }
    if options.device == "cpu":
        # A prompt that is prefilled in parts draws a token that vLLM takes back by rewinding the
        # request's generator, and a generator on CPU cannot be rewound: seeded requests would fail.
        chosen["enable_chunked_prefill"] = False
    if options.kv_cache_memory_mb is not None:
        chosen["kv_cache_memory_bytes"] = options.kv_cache_memory_mb << 20
    return EngineArgs(
        model=options.model,
        dtype=options.dtype,
        seed=options.seed,
        max_num_seqs=options.max_num_seqs,
        tensor_parallel_size=options.tensor_parallel_size,
        # Inside a Ray actor vLLM would otherwise look for a placement group of its own.
        distributed_executor_backend="mp" if options.tensor_parallel_size > 1 else "uni",
        enable_prefix_caching=options.enable_prefix_caching,
        enforce_eager=bool(options.enforce_eager),
        logprobs_mode="processed_logprobs",
        # Token ids in, token ids out; and no sampling defaults from the model's folder.
        skip_tokenizer_init=True,
        generation_config="vllm",
        disable_log_stats=True,
        use_tqdm_on_load=False,
        worker_extension_cls=f"{TRANSFER_MODULE}.HostWeightExtension",
        weight_transfer_config={"backend": "verigrad_host"},  # pyright: ignore[reportArgumentType]
        **{name: value for name, value in chosen.items() if value is not None},
    )


def make_sampling_params(sampling: SamplingOptions, *, seed: int) -> SamplingParams:
    """Translate our sampling options into vLLM's, for one completion."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        n=1,
        seed=seed,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        max_tokens=sampling.max_completion_length,
        stop_token_ids=list(sampling.stop_token_ids),
        # The caller names every token that ends a completion; the model's own end token is not
        # added to them.
        ignore_eos=True,
        logprobs=0,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def read_output(output: RequestOutput) -> Completion:
    """Translate what vLLM says about a request that ended."""
    completion = output.outputs[0]
    token_ids = tuple(completion.token_ids)
    assert completion.logprobs is not None
    assert completion.weight_versions is not None
    positions = cast("Sequence[dict[int, Logprob]]", completion.logprobs)
    logprobs = tuple(
        position[token].logprob for position, token in zip(positions, token_ids, strict=True)
    )
    versions: list[int] = []
    for span in completion.weight_versions:
        versions += [int(span.version)] * (span.end - span.start)
    assert len(versions) == len(token_ids), (len(versions), len(token_ids))
    prompt_logprobs: tuple[float, ...] = ()
    if output.prompt_logprobs is not None:
        prompt_ids = output.prompt_token_ids or []
        positions = cast("Sequence[dict[int, Logprob]]", output.prompt_logprobs[1:])
        prompt_logprobs = tuple(
            position[token].logprob
            for position, token in zip(positions, prompt_ids[1:], strict=True)
        )
    return Completion(
        request_id=output.request_id,
        token_ids=token_ids,
        logprobs=logprobs,
        policy_versions=tuple(versions),
        finish_reason=cast("FinishReason", completion.finish_reason),
        prompt_logprobs=prompt_logprobs,
    )
