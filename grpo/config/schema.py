"""Every option of a run, with its default and its meaning."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from grpo.config.base import NonNegative, Positive, Section, as_switch
from grpo.config.data import TrainSets
from grpo.config.sections import (
    EngineConfig,
    EvaluationConfig,
    InvariantsConfig,
    LearnerConfig,
    PromptingConfig,
    RayConfig,
    RewardsConfig,
    SandboxConfig,
    ServedConfig,
    VerificationConfig,
)
from grpo.data.difficulty import PromptSampling

# The same said in two ways: as a share, and as a count.
SHARES = (("num_train_epochs", "steps"), ("warmup_ratio", "warmup_steps"))


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
    num_train_epochs: Annotated[float, Field(gt=0)] | None = None
    """Passes over the training problems, in the place of `steps`; a run's plan says how many steps
    these are."""
    prompts_per_step: Positive = 16
    """Problems drawn in a step."""
    num_generations: Annotated[int, Field(ge=2)] = 8
    """Completions sampled for each prompt: the group that advantages are normalised in."""
    max_prompt_length: Positive = 512
    """In tokens; see `overlong_prompts`."""
    overlong_prompts: Literal["error", "drop"] = "error"
    """What a longer prompt leads to: an error before a model loads, or that its problem is left out
    and counted."""
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
    importance_sampling: Annotated[str | None, BeforeValidator(as_switch)] = None
    """Weighs the policy loss by the ratio of learner to sampler: `off`, `token_truncate` (TIS),
    `token_mask` (MIS, IcePop), `sequence_truncate` or `sequence_mask`. By default `token_truncate`;
    `off` with a nucleus (`top_p`, `top_k`, `min_p`) or `old_logprobs: sampler`; and where the loss
    is one value a completion (`gspo`), `sequence_truncate` with `max_staleness`, `off` without."""
    importance_min: Annotated[float, Field(ge=0)] | None = None
    """Smallest ratio that counts; by default 0."""
    importance_max: Annotated[float, Field(gt=0)] | None = None
    """Largest ratio that counts; by default 2, `.inf` is no limit."""
    importance_normalise: bool | None = None
    """Bring the mean weight of a batch to 1."""
    rejection_sampling: Annotated[str | None, BeforeValidator(as_switch)] = None
    """Leave out what the sampler drew too differently: tokens by `token_k3`, or whole completions
    by `sequence_k3`, `sequence_geometric` or `sequence_product`; by default `off`."""
    rejection_min: Annotated[float, Field(ge=0)] | None = None
    """Smallest statistic that is kept; by default 0."""
    rejection_max: Annotated[float, Field(gt=0)] | None = None
    """Largest statistic that is kept; must be set where `rejection_sampling` is on."""
    off_policy_mask_threshold: Annotated[float, Field(ge=0)] | None = None
    """Leave out completions with a negative advantage whose mean log-probability fell by more than
    this since they were sampled; by default none."""
    dynamic_sampling: Annotated[Literal["off", "filter", "replace"], BeforeValidator(as_switch)] = (
        "filter"
    )
    """`filter` leaves groups that teach nothing (whose rewards do not differ, under nearly every
    estimator) out of the batch; `replace` samples others in their place."""
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
    lora_push: Literal["merged", "adapter"] = "merged"
    """What engines are given: `merged` is all weights with the adapters in them, `adapter` is the
    adapters alone, which vLLM computes beside a base model that it loads once."""

    learning_rate: Annotated[float, Field(ge=0)] = 1e-6
    """The highest rate of the schedule; with 0 nothing is learned, which tries out all the rest."""
    lr_scheduler_type: Literal["constant", "linear", "cosine"] = "constant"
    """Course of the learning rate after the warm-up."""
    warmup_steps: NonNegative = 0
    """Updates over which the learning rate rises."""
    warmup_ratio: Annotated[float, Field(ge=0, le=1)] | None = None
    """The same as a share of the run's updates, in the place of `warmup_steps`."""
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
    keep_rollouts: Positive | None = None
    """Training steps whose rollouts stay on disk, the newest; by default all. `verigrad replay`
    needs those since the checkpoint before its step."""
    compress_rollouts: bool = False
    """Write rollouts as `.jsonl.gz`: less than half the size, for some seconds of one core."""
    max_non_finite_steps: Positive = 3
    """The run fails when so many steps in a row give a loss or gradient that is not finite. Each is
    skipped, and its batch written to `skipped/`."""
    max_unverified_steps: Positive = 3
    """The run fails when in so many steps in a row no completion at all could be verified."""
    metric_for_best_model: str | None = None
    """Keep the checkpoint with the highest value of a held-out metric, such as
    `heldout/maths/pass@1`, whatever comes after it; `checkpoints/best` points at it."""
    eval_steps: NonNegative = 0
    """Evaluate every so many steps; 0 only before and after training."""
    eval_before_train: bool = True
    """Evaluate the untrained policy, to compare with."""
    report_to: tuple[Literal["tensorboard", "wandb", "prometheus"], ...] = ("tensorboard",)
    """Where metrics go besides `metrics.jsonl`; `wandb` wants `verigrad[wandb]`, and `prometheus`
    serves them at `127.0.0.1:9464/metrics` (`VERIGRAD_PROMETHEUS_HOST`, 0.0.0.0 being every address
    of the machine, and `VERIGRAD_PROMETHEUS_PORT`)."""

    start_timeout_s: Annotated[float, Field(gt=0)] = 600.0
    """How long engines, learner and verifiers may each take to start; what the hub takes to give
    the model does not count."""
    placement: Literal["auto", "colocated", "dedicated"] = "auto"
    """`colocated`: engines and learner ranks share devices and take turns. `dedicated`: each has
    devices of its own. `auto` is `dedicated` where there are GPUs enough for it."""
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

    @model_validator(mode="after")
    def _check_one_form(self) -> Self:
        for share, count in SHARES:
            if getattr(self, share) is not None and count in self.model_fields_set:
                raise ValueError(
                    f"{share}={getattr(self, share)} and {count}={getattr(self, count)} say the "
                    "same in two ways; leave one of them out"
                )
        return self

    @property
    def completions_per_step(self) -> int:
        """Completions sampled in a step."""
        return self.prompts_per_step * self.num_generations
