"""What a `loss_type` stands for: an advantage, a policy loss, a reduction and their parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from grpo.algorithms.advantages import ADVANTAGES, ScaleRewards
from grpo.algorithms.kl import KL_ESTIMATORS
from grpo.algorithms.losses import LOSSES
from grpo.algorithms.reductions import REDUCTIONS
from verifiers.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One complete training objective.

    Attributes:
        advantage: A key of `ADVANTAGES`.
        scale_rewards: What centred rewards are divided by.
        policy_loss: A key of `LOSSES`.
        loss_reduction: A key of `REDUCTIONS`.
        epsilon: How far the ratio may fall below 1.
        epsilon_high: How far it may rise above 1; for `cispo` the largest weight itself.
        delta: Largest ratio that counts where the advantage is negative; None is no limit.
        kl_estimator: A key of `KL_ESTIMATORS`; of no effect while `beta` is 0.
    """

    advantage: str = "grpo"
    scale_rewards: ScaleRewards = "group"
    policy_loss: str = "ppo_clip"
    loss_reduction: str = "token_mean"
    epsilon: float = 0.2
    epsilon_high: float = 0.2
    delta: float | None = None
    kl_estimator: str = "k3_ratio"


PRESETS: Mapping[str, Objective] = {
    "grpo": Objective(loss_reduction="sequence_mean"),
    "dr_grpo": Objective(scale_rewards="none", loss_reduction="constant"),
    "dapo": Objective(epsilon_high=0.28),
    "gspo": Objective(
        policy_loss="gspo", loss_reduction="sequence_mean", epsilon=3e-4, epsilon_high=4e-4
    ),
    "cispo": Objective(policy_loss="cispo", epsilon_high=5.0),
    "rloo": Objective(advantage="rloo", scale_rewards="none", loss_reduction="sequence_sum"),
    "reinforce_plus_plus_baseline": Objective(
        advantage="reinforce_plus_plus_baseline", scale_rewards="none"
    ),
    "max_rl": Objective(advantage="max_rl", scale_rewards="none", policy_loss="reinforce"),
    "gpg": Objective(advantage="gpg", scale_rewards="none", policy_loss="reinforce"),
}

_TABLES: Mapping[str, Mapping[str, Any]] = {
    "advantage": ADVANTAGES,
    "scale_rewards": {"group": None, "batch": None, "none": None},
    "policy_loss": LOSSES,
    "loss_reduction": REDUCTIONS,
    "kl_estimator": KL_ESTIMATORS,
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
    # Someone who moves the lower bound of a symmetric clip means both sides.
    preset = PRESETS[loss_type]
    if "epsilon" in given and "epsilon_high" not in given and preset.epsilon == preset.epsilon_high:
        given["epsilon_high"] = given["epsilon"]
    objective = replace(preset, **given)
    _check_names(objective)
    _check_agreement(loss_type, objective, given)
    return objective


def _check_names(objective: Objective) -> None:
    for key, table in _TABLES.items():
        value = getattr(objective, key)
        if value not in table:
            raise UserError(f"{key}={value!r} is unknown: choose one of {', '.join(table)}")


def _check_agreement(loss_type: str, objective: Objective, given: Mapping[str, Any]) -> None:
    """Refuse pairs of settings of which one would have no effect or change the other's meaning."""
    where = f"(loss_type={loss_type!r}, policy_loss={objective.policy_loss!r})"
    if objective.advantage != "grpo" and objective.scale_rewards != "none":
        raise UserError(
            f"scale_rewards={objective.scale_rewards!r} contradicts"
            f" advantage={objective.advantage!r}, which fixes its own scale: set"
            " scale_rewards='none', or advantage='grpo'"
        )
    if objective.policy_loss == "gspo" and objective.loss_reduction != "sequence_mean":
        raise UserError(
            f"loss_reduction={objective.loss_reduction!r} contradicts policy_loss='gspo', whose"
            " ratio is one value a sequence: use 'sequence_mean'"
        )
    if objective.policy_loss == "cispo" and objective.epsilon_high <= 1:
        raise UserError(
            f"epsilon_high={objective.epsilon_high} does not fit policy_loss='cispo', where it is"
            " the largest weight itself and must be above 1 (5.0 is usual)"
        )
    unused = {
        "ppo_clip": set[str](),
        "gspo": set[str](),
        "cispo": {"epsilon", "delta"},
        "reinforce": {"epsilon", "epsilon_high", "delta"},
    }[objective.policy_loss]
    if useless := unused & set(given):
        raise UserError(f"{', '.join(sorted(useless))} has no effect here {where}: remove it")
    _check_ranges(objective)


def _check_ranges(objective: Objective) -> None:
    if not 0 <= objective.epsilon < 1:
        raise UserError(f"epsilon={objective.epsilon} must be at least 0 and below 1")
    if objective.epsilon_high < 0:
        raise UserError(f"epsilon_high={objective.epsilon_high} must not be negative")
    if objective.delta is not None and objective.delta <= 1 + objective.epsilon_high:
        raise UserError(
            f"delta={objective.delta} must be above 1 + epsilon_high ="
            f" {1 + objective.epsilon_high}: below that it would overrule the clip"
        )
