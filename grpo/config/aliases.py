"""Option names of other trainers, and what they are called here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_SAME: Callable[[Any], Any] = lambda value: value  # noqa: E731 - a table entry, not a function to call by name


def _std_to_scale(value: Any) -> str:
    return "group" if value else "none"


_REDUCTIONS = {
    "token-mean": "token_mean",
    "seq-mean-token-mean": "sequence_mean",
    "seq-mean-token-sum": "sequence_sum",
    "seq-mean-token-sum-norm": "constant",
}


def _to_placement(value: Any) -> str:
    return "reward" if value else "loss"


def _to_overlong(value: Any) -> str:
    return "drop" if value else "error"


_CORRECTIONS = {"token": "token_truncate", "sequence": "sequence_truncate", None: "off"}
_KL = {"kl": "k1", "mse": "k2", "low_var_kl": "k3"}

# foreign key -> (our key, how the value changes). Keys are matched whole, and by their last part
# where they are dotted.
ALIASES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    # TRL
    "model_name_or_path": ("model", _SAME),
    "max_steps": ("steps", _SAME),
    "vllm_gpu_memory_utilization": ("rollout.gpu_memory_utilization", _SAME),
    "vllm_tensor_parallel_size": ("rollout.tensor_parallel_size", _SAME),
    "vllm_importance_sampling_mode": ("importance_sampling", _SAME),
    "vllm_importance_sampling_cap": ("importance_max", _SAME),
    "gradient_checkpointing": ("learner.gradient_checkpointing", _SAME),
    # verl
    "rollout.n": ("num_generations", _SAME),
    "max_response_length": ("max_completion_length", _SAME),
    "data.filter_overlong_prompts": ("overlong_prompts", _to_overlong),
    "filter_overlong_prompts": ("overlong_prompts", _to_overlong),
    "kl_coef": ("beta", _SAME),
    "kl_loss_coef": ("beta", _SAME),
    "use_kl_in_reward": ("kl_placement", _to_placement),
    "target_kl": ("kl_target", _SAME),
    "horizon": ("kl_horizon", _SAME),
    "entropy_coeff": ("entropy_coef", _SAME),
    "ppo_epochs": ("num_iterations", _SAME),
    "overlong_buffer.len": ("overlong_buffer", _SAME),
    "overlong_buffer.penalty_factor": ("overlong_penalty", _SAME),
    "clip_ratio_c": ("delta", _SAME),
    "rollout_is": ("importance_sampling", lambda value: _CORRECTIONS.get(value, value)),
    "rollout_is_threshold": ("importance_max", _SAME),
    "tau_pos": ("sapo_temperature_pos", _SAME),
    "tau_neg": ("sapo_temperature_neg", _SAME),
    "kl_loss_type": ("kl_estimator", lambda value: _KL.get(value, value)),
    "clip_ratio": ("epsilon", _SAME),
    "clip_ratio_low": ("epsilon", _SAME),
    "clip_ratio_high": ("epsilon_high", _SAME),
    "adv_estimator": ("advantage_estimator", _SAME),
    "norm_adv_by_std_in_grpo": ("scale_rewards", _std_to_scale),
    "loss_agg_mode": ("loss_reduction", lambda value: _REDUCTIONS.get(value, value)),
    "save_freq": ("save_steps", _SAME),
    "test_freq": ("eval_steps", _SAME),
    "val_before_train": ("eval_before_train", _SAME),
    "total_training_steps": ("steps", _SAME),
    "total_epochs": ("num_train_epochs", _SAME),
    "lr_warmup_steps": ("warmup_steps", _SAME),
    "lr_warmup_steps_ratio": ("warmup_ratio", _SAME),
    # OpenRLHF, SkyRL, slime, NeMo-RL, prime-rl, AReaL
    "n_samples_per_prompt": ("num_generations", _SAME),
    "num_generations_per_prompt": ("num_generations", _SAME),
    "group_size": ("num_generations", _SAME),
    "rollout_batch_size": ("prompts_per_step", _SAME),
    "num_prompts_per_step": ("prompts_per_step", _SAME),
    "max_new_tokens": ("max_completion_length", _SAME),
    "init_kl_coef": ("beta", _SAME),
    "reference_policy_kl_penalty": ("beta", _SAME),
    "eps_clip": ("epsilon", _SAME),
    "eps_clip_high": ("epsilon_high", _SAME),
    "ratio_clip_min": ("epsilon", _SAME),
    "ratio_clip_max": ("epsilon_high", _SAME),
    "tis_imp_ratio_cap": ("importance_max", _SAME),
    "policy_loss_type": ("loss_type", _SAME),
    "grpo_norm_by_std": ("scale_rewards", _std_to_scale),
    "overlong_filtering": ("mask_truncated_completions", _SAME),
    "max_tokens_per_gpu": ("max_tokens_per_microbatch", _SAME),
    "lr": ("learning_rate", _SAME),
    "lora_rank": ("lora_r", _SAME),
    "hf_checkpoint": ("model", _SAME),
}
