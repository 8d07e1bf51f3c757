"""AdamW over the weights that train."""

from __future__ import annotations

from typing import Any

import torch

from grpo.learner.options import LearnerOptions
from grpo.learner.policy import Policy
from grpo.learner.schedule import compute_learning_rate


def build_optimizer(policy: Policy, options: LearnerOptions) -> torch.optim.Optimizer:
    """Build AdamW over the trainable weights; only matrices decay.

    `adamw_8bit` keeps its two moments in 8 bits each, block by block (arXiv 2110.02861).
    """
    trainable = [weight for weight in policy.parameters() if weight.requires_grad]
    matrices = [weight for weight in trainable if weight.ndim >= 2]
    rest = [weight for weight in trainable if weight.ndim < 2]
    groups = [
        {"params": weights, "weight_decay": decay}
        for weights, decay in ((matrices, options.weight_decay), (rest, 0.0))
        if weights
    ]
    return _find_class(options)(
        groups, lr=options.learning_rate, betas=options.adam_betas, eps=options.adam_epsilon
    )


def _find_class(options: LearnerOptions) -> Any:
    if options.optim == "adamw_torch":
        return torch.optim.AdamW
    from bitsandbytes.optim import AdamW8bit  # pyright: ignore[reportMissingImports] - GPU only

    return AdamW8bit


def set_learning_rate(optimizer: Any, updates_done: int, options: LearnerOptions) -> float:
    """Set the learning rate of the next update, and return it."""
    rate = compute_learning_rate(
        updates_done,
        peak=options.learning_rate,
        schedule=options.lr_scheduler,
        warmup_steps=options.warmup_steps,
        total_steps=options.total_steps,
    )
    for group in optimizer.param_groups:
        group["lr"] = rate
    return rate
