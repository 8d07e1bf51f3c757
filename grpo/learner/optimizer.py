"""AdamW over the weights that train."""

from __future__ import annotations

import torch

from grpo.learner.options import LearnerOptions
from grpo.learner.policy import Policy


def build_optimizer(policy: Policy, options: LearnerOptions) -> torch.optim.AdamW:
    """Build AdamW over the trainable weights; only matrices decay."""
    trainable = [weight for weight in policy.parameters() if weight.requires_grad]
    groups = [
        {"params": [w for w in trainable if w.ndim >= 2], "weight_decay": options.weight_decay},
        {"params": [w for w in trainable if w.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups, lr=options.learning_rate, betas=options.adam_betas, eps=options.adam_epsilon
    )
