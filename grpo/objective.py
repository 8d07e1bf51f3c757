"""The training objective that a configuration asks for."""

from __future__ import annotations

from grpo.algorithms.presets import Objective, resolve_objective
from grpo.config.schema import RunConfig


def make_objective(config: RunConfig) -> Objective:
    """The preset of `loss_type` with the user's overrides.

    Raises:
        UserError: A name is unknown, or two settings contradict each other.
    """
    return resolve_objective(
        config.loss_type,
        {
            "advantage": config.advantage_estimator,
            "scale_rewards": config.scale_rewards,
            "loss_reduction": config.loss_reduction,
            "epsilon": config.epsilon,
            "epsilon_high": config.epsilon_high,
            "delta": config.delta,
            "kl_estimator": config.kl_estimator,
        },
    )
