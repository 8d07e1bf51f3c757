"""What a `loss_type` stands for: an objective, and what may be set beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from grpo.algorithms.advantages import ADVANTAGES
from grpo.algorithms.agreement import check_agreement
from grpo.algorithms.kl import KL_ESTIMATORS
from grpo.algorithms.losses import LOSSES
from grpo.algorithms.mismatch import IMPORTANCE_SAMPLING, REJECTION_SAMPLING
from grpo.algorithms.objective import Objective
from grpo.algorithms.reductions import REDUCTIONS
from verifiers.errors import UserError

PRESETS: Mapping[str, Objective] = {
    "grpo": Objective(loss_reduction="sequence_mean"),
    "dr_grpo": Objective(scale_rewards="none", loss_reduction="constant"),
    "dapo": Objective(epsilon_high=0.28),
    "gspo": Objective(
        policy_loss="gspo", loss_reduction="sequence_mean", epsilon=3e-4, epsilon_high=4e-4
    ),
    "luspo": Objective(
        policy_loss="gspo", loss_reduction="sequence_sum", epsilon=3e-4, epsilon_high=4e-4
    ),
    "cispo": Objective(policy_loss="cispo", epsilon=1.0, epsilon_high=5.0),
    "aipo": Objective(policy_loss="cispo", epsilon=1.0, epsilon_high=2.0, old_logprobs="sampler"),
    "sapo": Objective(policy_loss="sapo", loss_reduction="sequence_mean"),
    "vespo": Objective(policy_loss="vespo"),
    "dppo": Objective(
        policy_loss="dppo_tv", scale_rewards="none", epsilon_high=0.2, old_logprobs="sampler"
    ),
    "decoupled_ppo": Objective(importance_sampling="token_truncate", importance_max=math.inf),
    "rloo": Objective(
        advantage_estimator="rloo",
        scale_rewards="none",
        loss_reduction="sequence_sum",
        kl_placement="reward",
        kl_estimator="k1",
    ),
    "reinforce_plus_plus": Objective(
        advantage_estimator="reinforce_plus_plus",
        scale_rewards="none",
        kl_placement="reward",
        kl_estimator="k1",
    ),
    "reinforce_plus_plus_baseline": Objective(
        advantage_estimator="reinforce_plus_plus_baseline", scale_rewards="none"
    ),
    "opo": Objective(advantage_estimator="opo", scale_rewards="none", policy_loss="reinforce"),
    "gdpo": Objective(advantage_estimator="gdpo"),
    "max_rl": Objective(
        advantage_estimator="max_rl", scale_rewards="none", policy_loss="reinforce"
    ),
    "gpg": Objective(advantage_estimator="gpg", scale_rewards="none", policy_loss="reinforce"),
}

_CHOICES: Mapping[str, Mapping[str, Any]] = {
    "advantage_estimator": ADVANTAGES,
    "scale_rewards": dict.fromkeys(("group", "batch", "none")),
    "policy_loss": LOSSES,
    "loss_reduction": REDUCTIONS,
    "old_logprobs": dict.fromkeys(("learner", "sampler")),
    "kl_placement": dict.fromkeys(("loss", "reward")),
    "kl_estimator": KL_ESTIMATORS,
    "importance_sampling": IMPORTANCE_SAMPLING,
    "rejection_sampling": REJECTION_SAMPLING,
}


def resolve_objective(loss_type: str, overrides: Mapping[str, Any] | None = None) -> Objective:
    """Look up a preset and apply what the user set beside it.

    Args:
        loss_type: A key of `PRESETS`.
        overrides: Fields of `Objective` that the user set; a value of None keeps the preset's.

    Raises:
        UserError: If a name is unknown, or two of the settings contradict each other.

    Example:
        >>> resolve_objective("dapo", {"epsilon_high": 0.3}).epsilon_high
        0.3
    """
    if loss_type not in PRESETS:
        raise UserError(f"loss_type={loss_type!r} is unknown: choose one of {', '.join(PRESETS)}")
    given = {key: value for key, value in (overrides or {}).items() if value is not None}
    known = {field.name for field in fields(Objective)}
    if unknown := set(given) - known:
        raise UserError(
            f"{', '.join(sorted(unknown))} is no part of an objective: its parts are"
            f" {', '.join(sorted(known))}"
        )
    preset = PRESETS[loss_type]
    objective = replace(preset, **_implied(preset, given), **given)
    for key, table in _CHOICES.items():
        value = getattr(objective, key)
        if value not in table:
            raise UserError(f"{key}={value!r} is unknown: choose one of {', '.join(table)}")
    check_agreement(loss_type, objective, given)
    return objective


def _implied(preset: Objective, given: Mapping[str, Any]) -> dict[str, Any]:
    """What follows from the user's settings where the user left it open."""
    implied: dict[str, Any] = {}
    # Someone who moves the lower bound of a symmetric clip means both sides.
    symmetric = preset.epsilon == preset.epsilon_high
    if "epsilon" in given and symmetric and "epsilon_high" not in given:
        implied["epsilon_high"] = given["epsilon"]
    # Each placement has one estimator whose gradient is that of KL(policy, reference).
    if "kl_placement" in given and "kl_estimator" not in given:
        implied["kl_estimator"] = "k1" if given["kl_placement"] == "reward" else "k3_ratio"
    return implied
