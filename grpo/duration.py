"""How many steps a run has, and how many updates its warm-up, where they are said as shares."""

from __future__ import annotations

import math

from grpo.config.schema import RunConfig


def resolve_duration(config: RunConfig, *, num_problems: int) -> RunConfig:
    """The same run with its length in steps and its warm-up in updates.

    Args:
        config: Of the run.
        num_problems: Of all training sets together.

    Example:
        >>> config = RunConfig(model="m", num_train_epochs=2, warmup_ratio=0.1, prompts_per_step=16)
        >>> resolved = resolve_duration(config, num_problems=100)
        >>> resolved.steps, resolved.warmup_steps
        (13, 2)
    """
    changes: dict[str, int | None] = {}
    steps = config.steps
    if config.num_train_epochs is not None:
        steps = math.ceil(config.num_train_epochs * num_problems / config.prompts_per_step)
        changes |= {"steps": steps, "num_train_epochs": None}
    if config.warmup_ratio is not None:
        updates = steps * config.num_iterations * config.num_mini_batches
        changes |= {"warmup_steps": math.ceil(config.warmup_ratio * updates), "warmup_ratio": None}
    return config.model_copy(update=changes)
