"""What a configuration asks to be optimised: the objective and the rewards."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from grpo.algorithms.losses import NO_RATIO, SEQUENCE_LEVEL
from grpo.algorithms.objective import Objective
from grpo.algorithms.presets import PRESETS, resolve_objective
from grpo.config.schema import RunConfig
from grpo.rewards import RewardPolicy
from verifiers.errors import UserError
from verifiers.verdict import Status


def make_objective(config: RunConfig) -> Objective:
    """The preset of `loss_type` with the user's overrides, and the default correction.

    Raises:
        UserError: A name is unknown, or two settings contradict each other.
    """
    overrides: dict[str, Any] = {
        field.name: getattr(config, field.name) for field in fields(Objective)
    }
    if overrides["importance_sampling"] is None and _can_be_corrected(config):
        overrides["importance_sampling"] = _choose_correction(config)
    objective = resolve_objective(config.loss_type, overrides)
    _check_sampler(config, objective)
    _check_schedule(config, objective)
    _check_staleness(config, objective)
    return objective


def make_reward_policy(config: RunConfig, *, shaped: bool = True) -> RewardPolicy:
    """What verdicts are worth.

    Args:
        config: Of the run.
        shaped: With weighted components and the punishment of length; otherwise the value of the
            verdict alone.

    Raises:
        UserError: The punished length is all there is.
    """
    rewards = config.rewards
    if config.overlong_buffer >= config.max_completion_length:
        raise UserError(
            f"overlong_buffer={config.overlong_buffer} leaves no unpunished length below"
            f" max_completion_length={config.max_completion_length}: it must be smaller"
        )
    return RewardPolicy(
        values={
            Status.CORRECT: rewards.correct,
            Status.INCORRECT: rewards.incorrect,
            Status.NO_ANSWER: rewards.no_answer,
            Status.LIMIT: rewards.limit,
        },
        weights=rewards.weights if shaped else {},
        overlong_buffer=config.overlong_buffer if shaped else 0,
        overlong_penalty=config.overlong_penalty,
        max_completion_length=config.max_completion_length,
    )


def samples_whole_distribution(config: RunConfig) -> bool:
    """Whether the sampler may draw every token, so that its log-probabilities are the policy's."""
    return config.top_p == 1.0 and not (config.top_k and config.top_k > 0) and config.min_p == 0.0


def _can_be_corrected(config: RunConfig) -> bool:
    """Whether the ratio to the sampler means something and is not used up by the policy loss."""
    preset = PRESETS.get(config.loss_type)
    if preset is None or preset.importance_sampling != "off":
        return False
    old = config.old_logprobs or preset.old_logprobs
    return old == "learner" and samples_whole_distribution(config)


def _choose_correction(config: RunConfig) -> str:
    """The correction that fits the policy loss.

    Weights of single tokens mean nothing to a loss that is one value a sequence. A sequence's own
    weight is the product of its tokens': what the kernels differ by grows in it with the length,
    until a few completions outweigh the rest, so it has to pay for itself against staleness.
    """
    policy_loss = config.policy_loss or PRESETS[config.loss_type].policy_loss
    if policy_loss not in SEQUENCE_LEVEL:
        return "token_truncate"
    return "sequence_truncate" if config.max_staleness else "off"


def _check_sampler(config: RunConfig, objective: Objective) -> None:
    """Refuse a ratio to the sampler where the sampler draws from another distribution."""
    if samples_whole_distribution(config):
        return
    uses = {
        "importance_sampling": objective.importance_sampling != "off",
        "rejection_sampling": objective.rejection_sampling != "off",
        "old_logprobs": objective.old_logprobs == "sampler",
        "off_policy_mask_threshold": objective.off_policy_mask_threshold is not None,
    }
    nucleus = next(
        f"{key}={getattr(config, key)}"
        for key, off in (("top_p", (1.0,)), ("top_k", (-1, 0, None)), ("min_p", (0.0,)))
        if getattr(config, key) not in off
    )
    for key, used in uses.items():
        if used:
            raise UserError(
                f"{key}={getattr(objective, key)!r} (loss_type={config.loss_type!r}) contradicts"
                f" {nucleus}: the sampler's log-probabilities are then of a renormalised"
                " distribution, and their ratio to the policy's means nothing. Sample from the"
                " whole distribution, or do without the ratio"
            )


def _check_staleness(config: RunConfig, objective: Objective) -> None:
    """Refuse to learn from an older policy's samples as if they were the policy's own."""
    corrected = objective.importance_sampling != "off" or objective.old_logprobs == "sampler"
    if config.max_staleness and not corrected:
        raise UserError(
            f"max_staleness={config.max_staleness} learns from samples of older policies, and"
            " nothing corrects for that: importance_sampling is off, as it must be where top_p,"
            " top_k or min_p cut the distribution. Sample from the whole distribution and leave"
            " importance_sampling out, set old_logprobs: sampler, or set max_staleness=0"
        )


def _check_schedule(config: RunConfig, objective: Objective) -> None:
    if config.kl_target is not None and config.beta == 0:
        raise UserError(
            f"kl_target={config.kl_target} has no effect with beta=0, which has no KL to adapt: set"
            " beta to where it starts (0.001 is usual), or remove kl_target"
        )
    if config.num_mini_batches > config.prompts_per_step:
        raise UserError(
            f"num_mini_batches={config.num_mini_batches} is more than"
            f" prompts_per_step={config.prompts_per_step}: an update learns from whole groups, so"
            " there must be a prompt for each"
        )
    if config.num_iterations * config.num_mini_batches > 1 and objective.policy_loss in NO_RATIO:
        key = "num_iterations" if config.num_iterations > 1 else "num_mini_batches"
        raise UserError(
            f"{key}={getattr(config, key)} makes several updates on a batch and contradicts"
            f" policy_loss={objective.policy_loss!r} (loss_type={config.loss_type!r}), which has no"
            " ratio of new to old policy: nothing corrects for what the first of them changed."
            " Leave it at 1, or use policy_loss='ppo_clip'"
        )
