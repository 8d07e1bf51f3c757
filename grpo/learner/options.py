"""What a learner is told at its start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from grpo.algorithms.objective import Objective
from grpo.learner.schedule import ScheduleName

OnBreach = Literal["stop", "warn"]
Precision = Literal["float32", "bfloat16", "float64"]
Sharding = Literal["ddp", "fsdp2"]
Packing = Literal["auto", "on", "off"]
Optim = Literal["adamw_torch", "adamw_8bit"]
LoraPush = Literal["merged", "adapter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraOptions:
    """The adapters of a policy.

    Attributes:
        r: Their rank.
        alpha: Their output is scaled by alpha / r, under `use_rslora` by alpha / sqrt(r).
        target_modules: Patterns of the linear layers that get one; none means every linear layer
            but the output layer.
        use_rslora: Scale so that high ranks learn as fast as low ones (arXiv 2312.03732).
        push: What engines are given: all weights with the adapters merged into them, or the
            adapters alone.
    """

    r: int
    alpha: float = 32.0
    target_modules: tuple[str, ...] = ()
    use_rslora: bool = False
    push: LoraPush = "merged"


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerOptions:
    """Everything that shapes an update, plain values only.

    Attributes:
        model: Folder or hub id of the policy that training starts from, in Hugging Face format;
            also the reference.
        objective: What is optimised.
        num_iterations: Passes over a batch.
        num_mini_batches: Updates in a pass, each on its own part of the batch.
        beta: Weight of the KL term; with 0 no reference model is built.
        kl_target: Mean KL per token that beta is steered to; None keeps beta.
        kl_horizon: Completions over which a far-off KL changes beta by a fifth.
        entropy_coef: Weight of the entropy bonus.
        entropy_target: Entropy per token below which the bonus grows and is given; None gives it
            always.
        entropy_coef_delta: How much it grows or shrinks in a step.
        entropy_coef_max: How far it may grow.
        temperature: The sampler's; logits are divided by it.
        max_completion_length: Longest completion in tokens, the constant of the reduction
            `constant`.
        max_tokens_per_microbatch: Tokens of one forward pass, padding included, at most.
        packing: Whether samples share a row; see `grpo.learner.packing`.
        learning_rate: At the end of the warm-up.
        lr_scheduler: Its course after that.
        warmup_steps: Updates over which it rises from 0.
        total_steps: Updates of the whole run, for a schedule that falls.
        optim: AdamW as torch has it, or with moments of 8 bits (GPU, whole copies only).
        adam_betas: AdamW's decay rates.
        adam_epsilon: AdamW's epsilon.
        weight_decay: Applied to matrices only, never to biases and norms.
        max_grad_norm: Longest gradient, over all parameters and ranks; 0 does not clip.
        gradient_checkpointing: Recompute activations in the backward pass.
        precision: `bfloat16` computes in it and keeps float32 master weights; `float64` is for
            proofs of the arithmetic.
        engine_dtype: What the engines hold the weights in; None if it is `precision`.
        sharding: How ranks share the weights.
        lora: Train adapters; None trains the weights themselves.
        frozen_layers: Patterns of weights that do not train; see `grpo.learner.selecting`.
        ref_model_sync_steps: Updates after which the reference takes the policy's weights over; 0
            keeps it as it is.
        ref_model_mixup_alpha: How much of them it takes; the rest stays its own.
        reference_offload: Keep the reference in the host's memory while it is not used.
        use_cpu: Compute on the CPU even where there is a GPU.
        shares_gpu: Give back what torch keeps of the GPU's memory after each update.
        check_sampler_logprobs: Stop when the sampler's log-probabilities are not the learner's.
            Right whenever the sampler applies the same temperature and no nucleus.
        on_breach: Whether a broken invariant stops the run or is noted.
        max_logprob_difference: Another bound of that check's mean than the precision's own.
        seed: The run's.
    """

    model: str
    objective: Objective = field(default_factory=Objective)
    num_iterations: int = 1
    num_mini_batches: int = 1
    beta: float = 0.0
    kl_target: float | None = None
    kl_horizon: float = 10_000.0
    entropy_coef: float = 0.0
    entropy_target: float | None = None
    entropy_coef_delta: float = 0.005
    entropy_coef_max: float = 1.0
    temperature: float = 1.0
    max_completion_length: int
    max_tokens_per_microbatch: int
    packing: Packing = "auto"
    learning_rate: float = 1e-6
    lr_scheduler: ScheduleName = "constant"
    warmup_steps: int = 0
    total_steps: int
    optim: Optim = "adamw_torch"
    adam_betas: tuple[float, float] = (0.9, 0.999)
    adam_epsilon: float = 1e-8
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    gradient_checkpointing: bool = False
    precision: Precision = "float32"
    engine_dtype: Literal["float32", "bfloat16"] | None = None
    sharding: Sharding = "ddp"
    lora: LoraOptions | None = None
    frozen_layers: tuple[str, ...] = ()
    ref_model_sync_steps: int = 0
    ref_model_mixup_alpha: float = 1.0
    reference_offload: bool = False
    use_cpu: bool = False
    shares_gpu: bool = False
    check_sampler_logprobs: bool = True
    on_breach: OnBreach = "stop"
    max_logprob_difference: float | None = None
    seed: int = 0

    @property
    def served_precision(self) -> Precision:
        """What weights are handed to the engines in."""
        return self.engine_dtype or self.precision

    @property
    def agreed_precision(self) -> Precision:
        """The coarser one of engines and learner: how far the two can agree."""
        return "bfloat16" if self.engine_dtype == "bfloat16" else self.precision

    @property
    def gives_adapters(self) -> bool:
        """Whether engines are given the adapters alone."""
        return self.lora is not None and self.lora.push == "adapter"
