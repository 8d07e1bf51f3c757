"""The options of a run's parts: a section of the configuration for each."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from grpo.config.base import NonNegative, Positive, Section, as_switch
from grpo.config.data import EvalSets

# Arguments of vLLM's engine that `grpo.rollout.vllm_translation` decides about.
OWN_ENGINE_ARGS = frozenset(
    {
        "model", "dtype", "seed", "max_model_len", "max_num_seqs", "max_num_batched_tokens",
        "tensor_parallel_size", "gpu_memory_utilization", "kv_cache_memory_bytes", "block_size",
        "enable_chunked_prefill", "enable_prefix_caching", "enable_sleep_mode", "enforce_eager",
        "distributed_executor_backend", "logprobs_mode", "skip_tokenizer_init",
        "generation_config", "disable_log_stats", "use_tqdm_on_load", "worker_extension_cls",
        "weight_transfer_config",
    }
)  # fmt: skip


class EngineConfig(Section):
    """The vLLM engines; names as vLLM has them."""

    num_engines: Positive = 1
    """Engines, each a Ray actor."""
    tensor_parallel_size: Positive = 1
    """GPUs that one engine is spread over."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """`auto` is float32 on CPU and bfloat16 on GPU."""
    max_model_len: Positive | None = None
    """By default `max_prompt_length + max_completion_length`."""
    max_num_seqs: Positive | None = None
    """Completions that one engine works on at a time. By default 256 on CPU; on GPU vLLM chooses by
    the device: 1024 on an H100."""
    max_num_batched_tokens: Positive | None = None
    """Tokens of one engine step, prompts and completions together; by default vLLM's choice."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] | None = None
    """GPU only: share of the device that weights and KV cache may take; by default 0.5 where the
    learner has the same device, and 0.9 elsewhere."""
    kv_cache_memory_mb: Positive = 256
    """CPU only: size of the KV cache."""
    enforce_eager: bool | None = None
    """Skip graph capture. By default on for CPU, where capture costs minutes, and off for GPU."""
    num_threads: Positive | None = None
    """CPU only: threads of one engine; by default all cores of the machine, shared among its
    engines."""
    weight_transport: Literal["auto", "object", "shared_memory", "gloo", "nccl", "ipc"] = "auto"
    """How new weights reach the engines: through host memory by Ray's object store, `shared_memory`
    (one node only) or gloo, or from GPU to GPU by NCCL (`placement: dedicated`) or CUDA IPC
    (`colocated`). `auto` is the latter two on GPUs, else `shared_memory` where all is on
    the driver's own node, and gloo elsewhere."""
    stall_timeout_s: Annotated[float, Field(gt=0)] = 600.0
    """An engine that produces no token, or does not take new weights, for so long is started anew;
    what it owed is sampled again."""
    max_restarts: NonNegative = 3
    """Restarts of an engine within an hour; then the run goes on without it, and ends with the last
    one."""
    engine_args: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of vLLM's `EngineArgs`, by vLLM's names: `{quantization: fp8}`. Those that
    an option sets, or that a run rests on, are refused."""

    @field_validator("engine_args")
    @classmethod
    def _leave_ours_alone(cls, given: dict[str, Any]) -> dict[str, Any]:
        for name in sorted(OWN_ENGINE_ARGS & given.keys()):
            cure = f"set rollout.{name}" if name in cls.model_fields else "leave it out"
            raise ValueError(f"engine_args.{name} is set by the run itself; {cure}")
        return given


class LearnerConfig(Section):
    """The processes that train."""

    world_size: Positive = 1
    """Ranks, each a Ray actor with one device."""
    sharding: Literal["ddp", "fsdp2"] = "ddp"
    """How ranks share the model: `ddp` keeps a copy on each, `fsdp2` keeps a shard of every weight,
    gradient and optimizer state."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """What passes are computed in; the weights that train stay float32. `auto` is the engines'
    `rollout.dtype`."""
    packing: Annotated[Literal["auto", "on", "off"], BeforeValidator(as_switch)] = "auto"
    """Whether the samples of a micro-batch share one row without padding: `auto` packs where
    flash-attention is installed and computes (GPU, bfloat16), and pads samples of like length
    elsewhere."""
    num_threads: Positive | None = None
    """CPU only: threads of one rank; by default all cores of the machine, shared among its
    ranks."""
    gradient_checkpointing: bool = False
    """Trade compute for memory."""
    frozen_layers: tuple[str, ...] = ()
    """Weights that do not train, by patterns of their names: `embed_tokens`, `layers.[0-3]`,
    `mlp`."""
    reference_offload: bool = False
    """GPU only: keep the reference in the host's memory, and bring it to the device once a step, to
    score the batch."""
    stall_timeout_s: Annotated[float, Field(gt=0)] = 1800.0
    """Ranks that get nothing done for so long are taken for dead."""
    max_restarts: NonNegative = 3
    """Restarts of the learner from the last checkpoint within an hour; then the run ends."""


class VerificationConfig(Section):
    """The fleet of verifier workers."""

    num_workers: Positive = 2
    """Ray actors that verify; each can kill what hangs."""
    max_in_flight: Positive = 512
    """Submissions handed out and not answered; more wait in the driver."""
    stall_timeout_s: Annotated[float, Field(gt=0)] = 600.0
    """A worker that answers nothing for so long is killed; what hangs it twice is not verified."""


class RewardsConfig(Section):
    """What a verdict is worth. A submission that could not be verified has no reward at all."""

    correct: float = 1.0
    """For a right answer."""
    incorrect: float = 0.0
    """For a wrong answer; a graded score lies between the two."""
    no_answer: float = 0.0
    """For a completion without an answer."""
    limit: float = 0.0
    """For a completion that ran into a limit of its own making (time, memory, size)."""
    weights: dict[str, float] = Field(default_factory=dict)
    """Several rewards in the place of one: the weight of each component of a verdict, by name, such
    as the parts of a `composite`. A component that a verdict lacks counts 0."""


class SandboxConfig(Section):
    """Where model-written code runs; options of the `code` verifier."""

    backend: Literal["docker", "bubblewrap", "subprocess"] = "docker"
    """`docker` holds hostile programs; the others, for machines without an engine, need
    `allow_unsafe_backend`."""
    allow_unsafe_backend: bool = False
    """Take a backend that hostile programs can break out of."""
    isolation: Literal["uid", "namespace", "container_per_candidate"] = "uid"
    """Between programs: a user each in a shared container; that and namespaces each; a container
    each, which holds no capability and costs half a second."""
    image: str | None = None
    """By default the image that `verigrad sandbox build` makes."""
    runtime: str | None = None
    """A runtime that the Docker engine knows, such as runc, runsc (gVisor), kata or crun; by
    default the engine's own default."""
    pool_size: Positive | None = None
    """Warm containers a machine; by default one for each core, at most 8."""
    cpu_s: Annotated[float, Field(gt=0)] = 4.0
    """CPU seconds that one test may take, unless its problem says otherwise."""
    memory_mb: Positive = 256
    """Memory that one program may take, unless its problem says otherwise. Programs of problems
    that ask for more, which is granted up to 2048, run one at a time."""

    @model_validator(mode="after")
    def _unsafe_only_when_allowed(self) -> Self:
        if self.backend != "docker" and not self.allow_unsafe_backend:
            raise ValueError(
                f"the backend {self.backend} does not hold hostile programs; set "
                f"allow_unsafe_backend: true to use it all the same, or use docker"
            )
        return self


class EvaluationConfig(Section):
    """How held-out problems are sampled and scored."""

    data: EvalSets = ()
    """The held-out sets."""
    num_samples: Positive = 4
    """Completions for each problem: the n of pass@k."""
    k: tuple[Positive, ...] = (1,)
    """The k of pass@k; none above `num_samples`."""
    temperature: Annotated[float, Field(ge=0)] = 1.0
    """0 is greedy."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Nucleus of sampling; 1 is off."""
    top_k: Annotated[int, Field(ge=-1)] | None = -1
    """-1, 0 and null all mean off."""
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Smallest probability sampled, relative to the highest; 0 is off."""
    max_completion_length: Positive | None = None
    """By default as in training."""

    @model_validator(mode="after")
    def _k_at_most_n(self) -> Self:
        if self.k and max(self.k) > self.num_samples:
            raise ValueError(
                f"k={max(self.k)} is more than num_samples={self.num_samples}: pass@k needs at "
                f"least k samples "
                "of every problem; raise num_samples"
            )
        return self


class PromptingConfig(Section):
    """How prompts are put to the model, in training and in evaluation alike."""

    chat_template: str | None = None
    """A Jinja file that replaces the model's chat template; `none` puts prompts as plain text, for
    base models whose tokenizer has a template all the same."""
    template_options: dict[str, Any] = Field(default_factory=dict)
    """Variables that the template reads, such as `{enable_thinking: false}`."""
    completion_prefix: str = ""
    """Text that every prompt ends with, such as `<think>\\n`; verifiers see it as the completion's
    beginning."""


class ServedConfig(Section):
    """A model behind an OpenAI-compatible API, evaluated in place of `model`."""

    base_url: str | None = None
    """Address up to and with `/v1`; setting it turns the section on."""
    model: str | None = None
    """The model as the server calls it; by default `model`."""
    api: Literal["chat", "completions", "vllm"] = "chat"
    """`chat`: messages, and the server applies its own template. `completions`: prompts as text, by
    the tokenizer of `model`. `vllm`: token ids in and out, so that prompts are those of an
    evaluation here."""
    api_key_env: str = "OPENAI_API_KEY"
    """Environment variable with the key; where it is empty, none is sent."""
    max_concurrency: Positive = 16
    """Requests under way."""
    timeout_s: Annotated[float, Field(gt=0)] = 600.0
    """Of one request."""
    max_retries: NonNegative = 5
    """Further tries of a request that timed out or that the server was too busy for; then the
    sample counts as not verified, by name."""
    requests_per_minute: Annotated[float, Field(gt=0)] | None = None
    """Most requests sent in a minute; by default as many as the server takes."""

    @field_validator("base_url")
    @classmethod
    def _check_address(cls, url: str | None) -> str | None:
        if url is not None and not url.startswith(("http://", "https://")):
            raise ValueError("an address begins with http:// or https://, and ends with /v1")
        return url

    @model_validator(mode="after")
    def _check_turned_on(self) -> Self:
        idle = [
            name
            for name, field in type(self).model_fields.items()
            if getattr(self, name) != field.default
        ]
        if self.base_url is None and idle:
            raise ValueError(f"served.{idle[0]} says nothing without served.base_url; set it")
        return self

    @property
    def needs_tokenizer(self) -> bool:
        """Whether prompts are made here."""
        return self.base_url is None or self.api != "chat"


class RayConfig(Section):
    """The Ray cluster."""

    address: str | None = None
    """Address of a running cluster (`auto`, `ray://host:10001`), whose nodes decide whether the run
    is on GPUs; by default Ray starts on this machine."""
    object_store_mb: Positive = 512
    """Size of the shared-memory store of a Ray started here."""
    placement_timeout_s: Annotated[float, Field(ge=0)] = 60.0
    """How long a cluster at `address` may take to make room for the run; one that adds nodes on
    demand needs minutes."""


class InvariantsConfig(Section):
    """The checks that run beside every step."""

    on_breach: Literal["stop", "warn"] = "stop"
    """What a breach leads to: the run stops, or it goes on with a warning. Wrong lengths, a wrong
    normaliser and weights that did not reach an engine stop it in any case."""

    max_logprob_difference: Annotated[float, Field(gt=0)] | None = None
    """Largest mean |engine - learner| log-probability in nats over ever more tokens; of n tokens
    1 + 20 / sqrt(n) times as much is let pass. By default what rounding explains: 2e-4 in float32,
    where no single token may be off by 1e-3 either, and 0.1 in bfloat16."""
