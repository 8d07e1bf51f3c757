"""vLLM behind the `Engine` contract; the `vllm_*` files and `nccl` are all that knows vLLM."""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import psutil

from grpo.rollout.buffer_checksum import BufferChecksum
from grpo.rollout.errors import WeightPushFailed, WeightsRefused
from grpo.rollout.ipc import describe_tensors, make_ipc_update
from grpo.rollout.nccl import NcclReceiver
from grpo.rollout.options import EngineOptions
from grpo.rollout.protocol import Completion, EngineFacts
from grpo.rollout.segments import OwnedSegment
from grpo.rollout.vllm_lora_request import (
    begin_adapter,
    find_adapted_layers,
    naming_the_cure,
)
from grpo.rollout.vllm_translation import (
    make_engine_args,
    make_sampling_params,
    read_output,
)
from grpo.rollout.vllm_version import require_platform, require_vllm
from grpo.rollout.weights import DEVICE_TRANSPORTS, WeightPayload
from grpo.values import SamplingOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm import RequestOutput, SamplingParams

# vLLM's own limit is 5 s, after which it kills its children; on a busy machine that is before they
# have removed their shared memory.
SHUTDOWN_TIMEOUT_S = 30.0
# Weights go to the host's memory while an engine sleeps only if so many times their size is free:
# the learner and other engines want some of it too.
HOST_ROOM = 4


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
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.llm_engine import LLMEngine

        require_platform(options.device, current_platform.device_type)
        self._in_process = bool(options.in_process)
        adapted = find_adapted_layers(options)
        with naming_the_cure(options):
            self._engine = LLMEngine.from_engine_args(
                make_engine_args(options, adapted),
                # By it vLLM chooses sizes for a GPU; one that serves a chat gets smaller batches.
                UsageContext.LLM_CLASS if options.device == "cuda" else UsageContext.ENGINE_CONTEXT,
            )
        self._engine.collective_rpc("remove_rendezvous_file")
        self._nccl = NcclReceiver(
            uuid.uuid4().hex, options.tensor_parallel_size, self._init_transfer
        )
        if options.weight_backend != "nccl":  # which has somebody to meet first
            self._init_transfer({})
        self._lora_request = begin_adapter(self._engine, adapted) if adapted else None
        self._engine.set_weight_version(str(policy_version))
        self._unfinished: set[str] = set()
        # Always the same one: memory that a thread frees is at hand for none but itself.
        self._stager = ThreadPoolExecutor(1, thread_name_prefix="staging")
        # Only for engines in child processes, which cannot read the caller's memory.
        self._segment = OwnedSegment()
        config = self._engine.vllm_config
        blocks = config.cache_config.num_gpu_blocks or 0
        self._facts = EngineFacts(
            version=version,
            model_runner="V2" if config.use_v2_model_runner else "V1",
            device=options.device,
            dtype=str(config.model_config.dtype).removeprefix("torch."),
            max_model_len=config.model_config.max_model_len,
            max_num_seqs=config.scheduler_config.max_num_seqs,
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
            flat_logprobs=True,
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
        self._engine.add_request(
            request_id,
            {"prompt_token_ids": list(token_ids)},
            params,
            lora_request=self._lora_request,
        )
        self._unfinished.add(request_id)

    def decode(self, completions: Sequence[Sequence[int]]) -> list[str]:
        """As `Engine.decode`."""
        return self._tokenizer.batch_decode(
            [list(ids) for ids in completions],
            skip_special_tokens=True,
            clean_up_tokenization_spaces=False,
        )

    def receive_weights(self, payload: WeightPayload, buffer: np.ndarray) -> str:
        """As `Engine.receive_weights`: the workers see this process's memory, or a segment."""
        if not self._in_process and payload.transport != "shared_memory":
            segment = self._segment.reserve(payload.num_bytes)
            segment[:] = buffer
            buffer = segment
        checksum = BufferChecksum(buffer)
        checksum.advance(buffer.nbytes)
        # Children do it in the pause: they answer nothing while they step.
        if self._in_process and self._lora_request is None:
            self._stage(payload, buffer)
        return checksum.value()

    def _stage(self, payload: WeightPayload, buffer: np.ndarray) -> None:
        """Have the worker load a push beside the weights that it serves."""
        update = self._make_update(payload, buffer)
        try:
            self._stager.submit(
                self._engine.collective_rpc, "stage_weights", kwargs={"update_info": update}
            ).result()
        except Exception as error:
            raise WeightsRefused(
                "The weights do not fit the model, of which the engine still serves the version "
                f"before. {type(error).__name__}: {error}"
            ) from error

    def load_weights(self, version: int, payload: WeightPayload, buffer: np.ndarray) -> str:
        """As `Engine.load_weights`."""
        if payload.transport in DEVICE_TRANSPORTS:
            return self._load_from_device(version, payload)
        self._load(version, self._make_update(payload, buffer))
        return payload.checksum

    def sleep(self) -> bool:
        """As `Engine.sleep`; vLLM's level 1 keeps the weights, level 2 drops them."""
        needed = max(self._engine.collective_rpc("read_weight_bytes"))
        # Pushes of an adapter would not bring the model under it back.
        keeps = (
            self._lora_request is not None or psutil.virtual_memory().available > HOST_ROOM * needed
        )
        self._engine.sleep(1 if keeps else 2)
        return keeps

    def wake(self) -> None:
        """As `Engine.wake`."""
        self._engine.wake_up()

    def close(self) -> None:
        """As `Engine.close`."""
        self._stager.shutdown()
        self._engine.engine_core.shutdown(timeout=SHUTDOWN_TIMEOUT_S)
        self._segment.close()

    def _load_from_device(self, version: int, payload: WeightPayload) -> str:
        """Take weights from the learner's GPU, whose bytes can be checked only once loaded."""
        if payload.transport == "nccl":
            self._nccl.request(payload)
            update = describe_tensors(payload)
        else:
            update = make_ipc_update(payload)
        self._load(version, update)
        checksums = self._engine.collective_rpc("read_loaded_checksum")
        if wrong := [c for c in checksums if c != payload.checksum]:
            raise WeightPushFailed(
                f"The weights of policy version {version} were sent with checksum "
                f"{payload.checksum} and loaded with {wrong[0]} over {payload.transport}."
            )
        return checksums[0]

    def _load(self, version: int, update: dict[str, Any]) -> None:
        with self._paused():
            if self._lora_request is not None:
                self._engine.collective_rpc("load_adapter", kwargs={"update": update})
            else:
                self._engine.collective_rpc("start_weight_update")
                self._engine.collective_rpc("update_weights", kwargs={"update_info": update})
                self._engine.collective_rpc("finish_weight_update")
            self._drop_caches()
            self._engine.set_weight_version(str(version))

    def _init_transfer(self, init_info: dict[str, Any]) -> None:
        """Tell vLLM's workers what they need before the first push, or for a new learner."""
        self._engine.collective_rpc("shutdown_weight_transfer_engine")
        self._engine.collective_rpc("init_weight_transfer_engine", kwargs={"init_info": init_info})

    def _make_update(self, payload: WeightPayload, buffer: np.ndarray) -> dict[str, Any]:
        source: np.ndarray | str = buffer
        if payload.transport == "shared_memory" and not self._in_process:
            # The children read the sender's own segment: every copy is a whole model more.
            source = payload.handle
        elif not self._in_process:
            source = self._segment.name
        plan = [asdict(spec) for spec in payload.plan]
        return {
            "source": source,
            "num_bytes": payload.num_bytes,
            "checksum": payload.checksum,
            "plan": plan,
        }

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
