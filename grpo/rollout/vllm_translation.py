"""Our options in vLLM's words, and its answers in ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, cast

from grpo.packed import Spans, pack_logprobs, pack_token_ids
from grpo.rollout.options import LORA_RANKS, EngineOptions
from grpo.rollout.protocol import Completion
from grpo.values import FinishReason, SamplingOptions
from verifiers.errors import UserError

if TYPE_CHECKING:
    from vllm import RequestOutput, SamplingParams
    from vllm.engine.arg_utils import EngineArgs

WORKER_EXTENSION = "grpo.rollout.vllm_transfer.HostWeightExtension"
ADAPTER_EXTENSION = "grpo.rollout.vllm_lora.AdapterExtension"


def make_engine_args(options: EngineOptions, adapted: Sequence[str] = ()) -> EngineArgs:
    """Translate our options into vLLM's.

    Args:
        options: As `resolve_options` returns them.
        adapted: Names of the layers that have an adapter, under `options.adapter`.

    Raises:
        UserError: vLLM has no such further argument.
    """
    from vllm.engine.arg_utils import EngineArgs

    known = {field.name for field in fields(EngineArgs)}
    for name in options.engine_args.keys() - known:
        close = ", ".join(get_close_matches(name, known)) or "none that is like it"
        raise UserError(f"rollout.engine_args.{name}: vLLM has no such argument, but {close}.")
    return EngineArgs(**options.engine_args, **choose_engine_args(options, adapted))


def choose_engine_args(options: EngineOptions, adapted: Sequence[str] = ()) -> dict[str, Any]:
    """The arguments of vLLM's engine that our options decide about; args as `make_engine_args`."""
    chosen: dict[str, Any] = {
        "max_model_len": options.max_model_len,
        "max_num_seqs": options.max_num_seqs,
        "max_num_batched_tokens": options.max_num_batched_tokens,
        "gpu_memory_utilization": options.gpu_memory_utilization,
        "block_size": options.block_size,
    }
    if options.device == "cpu":
        # A prompt that is prefilled in parts draws a token that vLLM takes back by rewinding the
        # request's generator, and a generator on CPU cannot be rewound: seeded requests would fail.
        chosen["enable_chunked_prefill"] = False
    if options.can_sleep:
        chosen["enable_sleep_mode"] = True
    if options.kv_cache_memory_mb is not None:
        chosen["kv_cache_memory_bytes"] = options.kv_cache_memory_mb << 20
    if options.adapter is not None:
        chosen |= {
            "enable_lora": True,
            "max_lora_rank": next(rank for rank in LORA_RANKS if rank >= options.adapter.r),
            # By default vLLM computes an adapter, be it of zeros, beside embedding and output too.
            "lora_target_modules": sorted({name.rpartition(".")[2] for name in adapted}),
        }
    return {
        "model": options.model,
        "dtype": options.dtype,
        "seed": options.seed,
        "tensor_parallel_size": options.tensor_parallel_size,
        # Inside a Ray actor vLLM would otherwise look for a placement group of its own.
        "distributed_executor_backend": "mp" if options.tensor_parallel_size > 1 else "uni",
        "enable_prefix_caching": options.enable_prefix_caching,
        "enforce_eager": bool(options.enforce_eager),
        "logprobs_mode": "processed_logprobs",
        # Token ids in, token ids out; and no sampling defaults from the model's folder.
        "skip_tokenizer_init": True,
        "generation_config": "vllm",
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
        "worker_extension_cls": ADAPTER_EXTENSION if options.adapter else WORKER_EXTENSION,
        "weight_transfer_config": {"backend": f"verigrad_{options.weight_backend}"},
        **{name: value for name, value in chosen.items() if value is not None},
    }


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
        # Otherwise vLLM keeps a dictionary with an object in it for every token.
        flat_logprobs=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def read_output(output: RequestOutput) -> Completion:
    """Translate what vLLM says about a request that ended."""
    completion = output.outputs[0]
    token_ids = pack_token_ids(completion.token_ids)
    assert completion.weight_versions is not None
    logprobs = pack_logprobs(_read_logprobs(completion.logprobs, completion.token_ids))
    versions = Spans(
        (int(span.version), span.end - span.start) for span in completion.weight_versions
    )
    assert len(versions) == len(token_ids), (len(versions), len(token_ids))
    prompt_logprobs: tuple[float, ...] = ()
    if output.prompt_logprobs is not None:
        # vLLM has none for the first token.
        prompt_ids = output.prompt_token_ids or []
        prompt_logprobs = tuple(_read_logprobs(output.prompt_logprobs, prompt_ids[1:]))
    return Completion(
        request_id=output.request_id,
        token_ids=token_ids,
        logprobs=logprobs,
        policy_versions=versions,
        finish_reason=cast("FinishReason", completion.finish_reason),
        prompt_logprobs=prompt_logprobs,
    )


def _read_logprobs(found: Any, token_ids: Sequence[int]) -> Sequence[float]:
    """The log-probability of each token, of an answer that holds those and no others."""
    assert found.token_ids == list(token_ids), "log-probabilities of other tokens"
    return found.logprobs
