"""Every option of a run, with its default and its meaning."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from grpo.config.recipes import Role, merge_recipe
from grpo.data.difficulty import PromptSampling

Positive = Annotated[int, Field(ge=1)]
NonNegative = Annotated[int, Field(ge=0)]


class Section(BaseModel):
    """A part of the configuration: unknown keys are errors, values do not change once read."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class ColumnsConfig(Section):
    """Which columns of a data set hold what; verifiers see every other column by its own name."""

    prompt: str = "prompt"
    """The question: a string, or a list of chat messages."""
    answer: str = "answer"
    """The reference answer that the verifier reads."""
    verifier: str = "verifier"
    """The row's own verifier; where the column is absent, `verifier` of the data set counts."""
    id: str = "id"
    """The row's identity; where the column is absent, the row's place in the file."""


class FewShotConfig(Section):
    """Worked examples before the question, from the rows that come first in another split."""

    num: Positive
    """How many."""
    path: str | None = None
    """The file or hub id they are taken from; by default the set's own hub id."""
    split: str = "train"
    """Hub only."""
    answer: str | None = None
    """The column with the worked answer; by default the answer column, whole."""


class DataConfig(Section):
    """One set of problems. A bare name in the list stands for `recipe: NAME`."""

    recipe: str | None = None
    """A data set known by name (docs/data.md lists them); its other options need not be given, and
    win where they are. `path` then names a local copy."""
    path: str
    """A local file (.jsonl, .json, .parquet, .csv, .arrow, each but the last also .gz), an id on
    the Hugging Face hub, or `reasoning_gym:TASK`."""
    name: str | None = None
    """How tables and metrics call it; by default the recipe, the file's folder or the hub id."""
    subset: str | None = None
    """Hub only: the configuration's name."""
    split: str = "train"
    """Hub only; a recipe brings a split to train on and one to evaluate on."""
    revision: str | None = None
    """Hub only: a commit or tag; pin it to make a result repeatable."""
    files: tuple[str, ...] = ()
    """Hub only: the files of the repository to read, where it has no splits of its own; `{split}`
    stands for the split, and `*` for anything."""
    columns: ColumnsConfig = ColumnsConfig()
    """Which columns hold what."""
    format: str | None = None
    """The shape of the rows: `plain`, a trainer's (`verl`, `trl`, ...), or that of code problems as
    they are published (`humaneval`, `apps`, ...); see docs/data.md and docs/code_data.md. By
    default what the columns show."""
    time_limit_factor: Annotated[float, Field(gt=0)] = 2.0
    """Multiplies the time limits that rows of code problems state, which are meant for compiled
    languages."""
    where: dict[str, Any] = Field(default_factory=dict)
    """Rows to keep, by column: a value, a list of values, or `{from: A, to: B}` with both ends
    included, such as `{contest_date: {from: 2024-10-01, to: 2025-02-28}}`."""
    verifier: str | None = None
    """A built-in name, `path/to/file.py:function` or `package.module:function`."""
    verifier_options: dict[str, Any] = Field(default_factory=dict)
    """Options of that verifier; the same for every set of a run that it judges."""
    few_shot: FewShotConfig | None = None
    """Worked examples before the question."""
    answer_in_prompt: bool = False
    """Allow `prompt_template` to name the answer column, where it is part of the question, such as
    the target of a number puzzle."""
    system_prompt: str | None = None
    """A system message put before prompts that are plain strings."""
    prompt_template: str | None = None
    """Text with `{column}` fields that replaces the prompt column, such as `{question}\\nThink
    first.`"""
    answer_after: str | None = None
    """Keep only what follows the last occurrence of this text in the answer column (`####` for
    GSM8K)."""
    limit: Positive | None = None
    """Use only the first so many rows."""
    weight: Annotated[float, Field(gt=0)] | None = None
    """Share of this set among the prompts of a step, relative to the other sets; by default its
    number of rows."""

    @model_validator(mode="before")
    @classmethod
    def _merge_recipe(cls, given: Any) -> Any:
        return merge_recipe(given) if isinstance(given, dict) else given

    @property
    def label(self) -> str:
        """The name that tables and metrics use."""
        if self.name or self.recipe:
            return self.name or self.recipe or ""
        parts = [p for p in self.path.split("/") if p]
        return parts[-2] if len(parts) > 1 and "." in parts[-1] else parts[-1].split(".")[0]


def _as_sets(value: Any, role: Role) -> Any:
    entries = [value] if isinstance(value, dict | str) else value
    if not isinstance(entries, list | tuple):
        return entries
    named = [{"recipe": entry} if isinstance(entry, str) else entry for entry in entries]
    return [merge_recipe(entry, role) if isinstance(entry, dict) else entry for entry in named]


def _off(value: Any) -> Any:
    """YAML reads a bare `off` as false."""
    return "off" if value is False else value


TrainSets = Annotated[
    tuple[DataConfig, ...], BeforeValidator(lambda value: _as_sets(value, "train"))
]
EvalSets = Annotated[tuple[DataConfig, ...], BeforeValidator(lambda value: _as_sets(value, "test"))]


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
    max_num_seqs: Positive = 256
    """Completions that one engine works on at a time."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.5
    """GPU only: share of the device that weights and KV cache may take."""
    kv_cache_memory_mb: Positive = 256
    """CPU only: size of the KV cache."""
    enforce_eager: bool | None = None
    """Skip graph capture. By default on for CPU, where capture costs minutes, and off for GPU."""
    num_threads: Positive | None = None
    """CPU only: threads of one engine; by default all cores of the machine, shared among its
    engines."""
    stall_timeout_s: Annotated[float, Field(gt=0)] = 600.0
    """An engine that produces no token for so long is started anew; what it owed is sampled
    again."""
    max_restarts: NonNegative = 3
    """Restarts of an engine within an hour; then the run goes on without it, and ends with the last
    one."""


class LearnerConfig(Section):
    """The processes that train."""

    world_size: Positive = 1
    """Ranks, each a Ray actor with one device."""
    sharding: Literal["ddp", "fsdp2"] = "ddp"
    """How ranks share the model: `ddp` keeps a copy on each, `fsdp2` keeps a shard of every weight,
    gradient and optimizer state."""
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

    @property
    def needs_tokenizer(self) -> bool:
        """Whether prompts are made here."""
        return self.base_url is None or self.api != "chat"


class RayConfig(Section):
    """The Ray cluster."""

    address: str | None = None
    """Address of a running cluster (`auto`, `ray://host:10001`); by default Ray starts on this
    machine."""
    object_store_mb: Positive = 512
    """Size of the shared-memory store of a Ray started here."""


class InvariantsConfig(Section):
    """The checks that run beside every step."""

    on_breach: Literal["stop", "warn"] = "stop"
    """What a breach leads to: the run stops, or it goes on with a warning. Wrong lengths, a wrong
    normaliser and weights that did not reach an engine stop it in any case."""

    max_logprob_difference: Annotated[float, Field(gt=0)] | None = None
    """Largest mean |engine - learner| log-probability of a text; by default what rounding explains:
    1e-3 in float32, 0.3 in bfloat16."""


class RunConfig(Section):
    """A training run."""

    run_name: str = "run"
    """Folder of the run inside `output_dir`."""
    output_dir: str = "runs"
    """Folder that runs are kept in."""
    seed: NonNegative = 0
    """Of everything random: sampling, the order of problems, intervals."""
    model: str
    """A folder in Hugging Face format, a hub id, or `embedded:quickstart`."""
    data: TrainSets = ()
    """The training sets; only an evaluation can do without."""

    max_bad_references: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of a set's problems that may be left out, counted, because their verifier cannot read
    the reference; more of them is an error."""
    steps: Positive = 100
    """Steps; each consumes `prompts_per_step` problems and makes `num_iterations` x
    `num_mini_batches` updates."""
    prompts_per_step: Positive = 16
    """Problems drawn in a step."""
    num_generations: Annotated[int, Field(ge=2)] = 8
    """Completions sampled for each prompt: the group that advantages are normalised in."""
    max_prompt_length: Positive = 512
    """In tokens; a longer prompt is an error."""
    max_completion_length: Positive = 512
    """In tokens."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Of sampling in training; the learner divides its logits by the same."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Nucleus of sampling; 1 is off."""
    top_k: Annotated[int, Field(ge=-1)] | None = -1
    """-1, 0 and null all mean off."""
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Smallest probability sampled, relative to the highest; 0 is off."""

    loss_type: str = "dapo"
    """A preset of policy loss, reduction and advantage; see docs/algorithms.md."""
    advantage_estimator: str | None = None
    """Overrides the preset."""
    policy_loss: str | None = None
    """Overrides the preset."""
    loss_reduction: str | None = None
    """Overrides the preset."""
    scale_rewards: Literal["group", "batch", "none"] | None = None
    """Overrides the preset."""
    std_ddof: Literal[0, 1] | None = None
    """By default 1: the divisor of the rewards' standard deviation is the count less this."""
    std_epsilon: Annotated[float, Field(ge=0)] | None = None
    """Added to that standard deviation; by default 1e-4."""
    epsilon: Annotated[float, Field(gt=0)] | None = None
    """Overrides the preset's lower clip range."""
    epsilon_high: Annotated[float, Field(gt=0)] | None = None
    """Overrides the preset's upper clip range."""
    delta: Annotated[float, Field(gt=1)] | None = None
    """Largest ratio that counts where the advantage is negative (dual clip)."""
    sapo_temperature_pos: Annotated[float, Field(gt=0)] | None = None
    """`sapo`: how fast the gate closes for positive advantages; by default 1.0."""
    sapo_temperature_neg: Annotated[float, Field(gt=0)] | None = None
    """`sapo`: the same for negative ones; by default 1.05."""
    vespo_k_pos: Annotated[float, Field(ge=0)] | None = None
    """`vespo`: exponent of the weight for positive advantages; by default 2."""
    vespo_lambda_pos: Annotated[float, Field(ge=0)] | None = None
    """`vespo`: decay of the weight for positive advantages; by default 3."""
    vespo_k_neg: Annotated[float, Field(ge=0)] | None = None
    """`vespo`: exponent for negative ones; by default 3."""
    vespo_lambda_neg: Annotated[float, Field(ge=0)] | None = None
    """`vespo`: decay for negative ones; by default 2."""
    dppo_kl_tau: Annotated[float, Field(ge=0)] | None = None
    """`dppo`: weight of the squared log-ratio; by default 1e-3."""
    old_logprobs: Literal["learner", "sampler"] | None = None
    """What ratios compare the policy with: the learner's own log-probabilities before the first
    update on a batch, or the sampler's. Overrides the preset."""
    num_iterations: Positive = 1
    """Passes over the completions of a step."""
    num_mini_batches: Positive = 1
    """Updates in a pass, each on its own groups."""
    beta: Annotated[float, Field(ge=0)] = 0.0
    """Weight of the KL to the frozen reference; 0 builds no reference."""
    kl_estimator: Literal["k1", "k2", "k3", "k3_ratio"] | None = None
    """By default the one whose gradient is exact: `k3_ratio` in the loss, `k1` in the reward."""
    kl_placement: Literal["loss", "reward"] | None = None
    """Whether `beta` times the KL is added to the loss or taken off the reward. Overrides the
    preset."""
    kl_target: Annotated[float, Field(gt=0)] | None = None
    """Adapt `beta` so that the KL per token comes to this; by default `beta` stays."""
    kl_horizon: Annotated[float, Field(gt=0)] = 10_000.0
    """Completions over which a KL far from `kl_target` changes `beta` by a fifth."""
    entropy_coef: Annotated[float, Field(ge=0)] = 0.0
    """Weight of the entropy bonus; with `entropy_target`, where it starts."""
    entropy_target: Annotated[float, Field(gt=0)] | None = None
    """Give the bonus only while the entropy per token is not above this, and adapt its weight."""
    entropy_coef_delta: Annotated[float, Field(gt=0)] = 0.005
    """How much the weight grows or shrinks in a step, with `entropy_target`."""
    entropy_coef_max: Annotated[float, Field(gt=0)] = 1.0
    """How far it may grow."""
    importance_sampling: Annotated[str | None, BeforeValidator(_off)] = None
    """Weighs the policy loss by the ratio of learner to sampler: `off`, `token_truncate` (TIS),
    `token_mask` (MIS, IcePop), `sequence_truncate` or `sequence_mask`. By default `token_truncate`,
    and `off` with a nucleus (`top_p`, `top_k`, `min_p`) or `old_logprobs: sampler`."""
    importance_min: Annotated[float, Field(ge=0)] | None = None
    """Smallest ratio that counts; by default 0."""
    importance_max: Annotated[float, Field(gt=0)] | None = None
    """Largest ratio that counts; by default 2, `.inf` is no limit."""
    importance_normalise: bool | None = None
    """Bring the mean weight of a batch to 1."""
    rejection_sampling: Annotated[str | None, BeforeValidator(_off)] = None
    """Leave out what the sampler drew too differently: tokens by `token_k3`, or whole completions
    by `sequence_k3`, `sequence_geometric` or `sequence_product`; by default `off`."""
    rejection_min: Annotated[float, Field(ge=0)] | None = None
    """Smallest statistic that is kept; by default 0."""
    rejection_max: Annotated[float, Field(gt=0)] | None = None
    """Largest statistic that is kept; must be set where `rejection_sampling` is on."""
    off_policy_mask_threshold: Annotated[float, Field(ge=0)] | None = None
    """Leave out completions with a negative advantage whose mean log-probability fell by more than
    this since they were sampled; by default none."""
    dynamic_sampling: Annotated[Literal["off", "filter", "replace"], BeforeValidator(_off)] = (
        "filter"
    )
    """`filter` leaves groups whose rewards do not differ out of the batch; `replace` samples others
    in their place."""
    max_gen_batches: Positive = 3
    """With `replace`, the most problems sampled for a step, in multiples of `prompts_per_step`;
    there the step learns from what it has."""
    prompt_sampling: PromptSampling = "uniform"
    """Which problems are visited when their turn comes: `uniform` all of them, `pass_rate_band`
    those whose last group was within the band, `adaptive` in proportion to p (1 - p). Others are
    tried one time in ten."""
    min_pass_rate: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Lower end of the band."""
    max_pass_rate: Annotated[float, Field(ge=0, le=1)] = 0.9
    """Upper end of the band."""
    max_staleness: NonNegative = 0
    """Policy versions by which sampling may run ahead of learning. 0 samples and learns in turns,
    repeatably; 1 or more does both at once, with the importance correction on."""
    weight_update: Literal["in_flight", "drain"] = "in_flight"
    """With `max_staleness`, what happens to completions in flight at a push: they go on under the
    new policy, or the push waits for them."""
    mask_truncated_completions: bool = False
    """Leave completions that hit `max_completion_length` out of the loss."""
    overlong_buffer: NonNegative = 0
    """Punish the last so many tokens before `max_completion_length`, the more the longer; 0 is
    off."""
    overlong_penalty: Annotated[float, Field(gt=0)] = 1.0
    """What a completion of full length loses."""

    ref_model_sync_steps: NonNegative = 0
    """Updates after which the reference takes the policy's weights over; 0 keeps it frozen."""
    ref_model_mixup_alpha: Annotated[float, Field(gt=0, le=1)] = 1.0
    """How much of them it takes, the rest being its own: with `ref_model_sync_steps: 1`, a moving
    average."""

    lora_r: NonNegative = 0
    """Rank of low-rank adapters that train in place of the weights; 0 trains the weights."""
    lora_alpha: Annotated[float, Field(gt=0)] = 32.0
    """An adapter's output is scaled by `lora_alpha / lora_r`."""
    lora_target_modules: tuple[str, ...] = ()
    """Linear layers with an adapter, by patterns of their names (`q_proj`, `layers.*.mlp`); by
    default all but the output layer."""
    use_rslora: bool = False
    """Scale by `lora_alpha / sqrt(lora_r)`, so that high ranks learn as fast as low ones."""

    learning_rate: Annotated[float, Field(gt=0)] = 1e-6
    """The highest rate of the schedule."""
    lr_scheduler_type: Literal["constant", "linear", "cosine"] = "constant"
    """Course of the learning rate after the warm-up."""
    warmup_steps: NonNegative = 0
    """Updates over which the learning rate rises."""
    adam_beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Decay of the first moment."""
    adam_beta2: Annotated[float, Field(ge=0, lt=1)] = 0.95
    """Decay of the second moment."""
    adam_epsilon: Annotated[float, Field(gt=0)] = 1e-8
    """Added to AdamW's denominator."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Of matrices; never of biases and norms."""
    optim: Literal["adamw_torch", "adamw_8bit"] = "adamw_torch"
    """`adamw_8bit` keeps the moments in 8 bits; it needs a GPU and the package bitsandbytes."""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """Longest gradient, over all parameters and ranks."""
    max_tokens_per_microbatch: Positive = 16384
    """Tokens, padding included, of one forward and backward pass."""

    save_steps: NonNegative = 50
    """Write a checkpoint every so many steps; 0 only at the end and on Ctrl-C."""
    keep_last: Positive = 2
    """Checkpoints kept, besides the best one."""
    max_non_finite_steps: Positive = 3
    """The run fails when so many steps in a row give a loss or gradient that is not finite. Each is
    skipped, and its batch written to `skipped/`."""
    metric_for_best_model: str | None = None
    """Keep the checkpoint with the highest value of a held-out metric, such as
    `heldout/maths/pass@1`, whatever comes after it; `checkpoints/best` points at it."""
    eval_steps: NonNegative = 0
    """Evaluate every so many steps; 0 only before and after training."""
    eval_before_train: bool = True
    """Evaluate the untrained policy, to compare with."""
    report_to: tuple[Literal["tensorboard", "wandb"], ...] = ("tensorboard",)
    """Where metrics go besides `metrics.jsonl`; `wandb` wants `verigrad[wandb]`."""

    rollout: EngineConfig = EngineConfig()
    learner: LearnerConfig = LearnerConfig()
    verification: VerificationConfig = VerificationConfig()
    verifiers: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Options of verifiers, by the name that rows use."""
    rewards: RewardsConfig = RewardsConfig()
    sandbox: SandboxConfig = SandboxConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    invariants: InvariantsConfig = InvariantsConfig()
    prompting: PromptingConfig = PromptingConfig()
    served: ServedConfig = ServedConfig()
    ray: RayConfig = RayConfig()

    @property
    def completions_per_step(self) -> int:
        """Completions sampled in a step."""
        return self.prompts_per_step * self.num_generations
