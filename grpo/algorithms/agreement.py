"""Settings of an objective that cannot stand beside each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grpo.algorithms.advantages import SCALED
from grpo.algorithms.losses import LOSSES, SEQUENCE_LEVEL, parameters_of
from grpo.algorithms.mismatch import IMPORTANCE_SAMPLING
from grpo.algorithms.objective import Objective
from verifiers.errors import UserError

_LOSS_PARAMETERS = frozenset[str]().union(*(parameters_of(loss) for loss in LOSSES.values()))


def check_agreement(loss_type: str, objective: Objective, given: Mapping[str, Any]) -> None:
    """Refuse pairs of settings of which one would have no effect or change the other's meaning.

    Args:
        loss_type: The preset's name.
        objective: The preset with the user's settings.
        given: The user's settings.

    Raises:
        UserError: Naming both settings of the first such pair, and the way out.
    """
    _check_advantage(objective, given)
    _check_loss(loss_type, objective, given)
    _check_ranges(objective)
    _check_kl(objective)
    _check_mismatch(objective, given)


def _check_advantage(objective: Objective, given: Mapping[str, Any]) -> None:
    estimator, scale = objective.advantage_estimator, objective.scale_rewards
    if estimator not in SCALED and scale != "none":
        raise UserError(
            f"scale_rewards={scale!r} contradicts advantage_estimator={estimator!r}, which fixes"
            " its own scale: set scale_rewards='none', or advantage_estimator='grpo'"
        )
    if estimator == "gdpo" and scale == "batch":
        raise UserError(
            "scale_rewards='batch' contradicts advantage_estimator='gdpo', which normalises each"
            " reward in its group: use 'group' or 'none'"
        )
    for key in ("std_ddof", "std_epsilon"):
        if key in given and scale == "none":
            raise UserError(
                f"{key}={given[key]} has no effect with scale_rewards='none': remove it"
            )


def _check_loss(loss_type: str, objective: Objective, given: Mapping[str, Any]) -> None:
    name = objective.policy_loss
    if name == "gspo" and objective.loss_reduction not in ("sequence_mean", "sequence_sum"):
        raise UserError(
            f"loss_reduction={objective.loss_reduction!r} contradicts policy_loss='gspo', whose"
            " ratio is one value a sequence: use 'sequence_mean', or 'sequence_sum' for LUSPO"
        )
    if name == "cispo" and objective.epsilon_high <= 1:
        raise UserError(
            f"epsilon_high={objective.epsilon_high} does not fit policy_loss='cispo', where it is"
            " the largest weight itself and must be above 1 (5.0 is usual)"
        )
    if useless := (_LOSS_PARAMETERS - parameters_of(LOSSES[name])) & set(given):
        raise UserError(
            f"{', '.join(sorted(useless))} has no effect with loss_type={loss_type!r}, whose"
            f" policy_loss is {name!r}: remove it"
        )


def _check_ranges(objective: Objective) -> None:
    highest = 1.0 if objective.policy_loss in ("cispo", "dppo_tv") else 1.0 - 1e-12
    if not 0 <= objective.epsilon <= highest:
        raise UserError(
            f"epsilon={objective.epsilon} must be at least 0 and below 1 with"
            f" policy_loss={objective.policy_loss!r}"
        )
    if objective.epsilon_high < 0:
        raise UserError(f"epsilon_high={objective.epsilon_high} must not be negative")
    if objective.delta is not None and objective.delta <= 1 + objective.epsilon_high:
        raise UserError(
            f"delta={objective.delta} must be above 1 + epsilon_high ="
            f" {1 + objective.epsilon_high}: below that it would overrule the clip"
        )


def _check_kl(objective: Objective) -> None:
    if objective.kl_placement == "reward" and objective.kl_estimator == "k3_ratio":
        raise UserError(
            "kl_estimator='k3_ratio' contradicts kl_placement='reward': the ratio whose gradient it"
            " needs is 1 before the update. Use 'k1', whose gradient there is exact"
        )
    if objective.kl_placement == "loss" and objective.kl_estimator == "k1":
        raise UserError(
            "kl_estimator='k1' contradicts kl_placement='loss': its gradient there is noise that"
            " pulls nowhere, whatever beta is. Use 'k3_ratio', whose gradient is that of the KL, or"
            " kl_placement='reward'"
        )


def _check_mismatch(objective: Objective, given: Mapping[str, Any]) -> None:
    corrected = objective.importance_sampling != "off"
    rejecting = objective.rejection_sampling != "off"
    for key, active, switch in (
        ("importance_min", corrected, "importance_sampling"),
        ("importance_max", corrected, "importance_sampling"),
        ("importance_normalise", corrected, "importance_sampling"),
        ("rejection_min", rejecting, "rejection_sampling"),
        ("rejection_max", rejecting, "rejection_sampling"),
    ):
        if given.get(key) and not active:
            raise UserError(f"{key}={given[key]} has no effect with {switch}='off': remove it")
    if objective.old_logprobs == "sampler" and (corrected or rejecting):
        name = "importance_sampling" if corrected else "rejection_sampling"
        raise UserError(
            f"{name}={getattr(objective, name)!r} contradicts old_logprobs='sampler', with which"
            " the ratio to the sampler is part of the policy loss already: set it to 'off'"
        )
    if objective.policy_loss in SEQUENCE_LEVEL and corrected and not _is_by_sequence(objective):
        raise UserError(
            f"importance_sampling={objective.importance_sampling!r} contradicts"
            f" policy_loss={objective.policy_loss!r}, whose loss is one value a sequence: weights"
            " of single tokens average to no ratio at all. Use 'sequence_truncate',"
            " 'sequence_mask' or 'off'"
        )
    for low, high in (("importance_min", "importance_max"), ("rejection_min", "rejection_max")):
        smallest, largest = getattr(objective, low), getattr(objective, high)
        if not 0 <= smallest < largest:
            raise UserError(
                f"{low}={smallest} and {high}={largest} leave nothing between them: the first must"
                " be at least 0 and below the second"
            )
    if rejecting and objective.rejection_min == 0 and objective.rejection_max == float("inf"):
        raise UserError(
            f"rejection_sampling={objective.rejection_sampling!r} rejects nothing without bounds:"
            " set rejection_max, and rejection_min for a ratio"
        )


def _is_by_sequence(objective: Objective) -> bool:
    correction = IMPORTANCE_SAMPLING[objective.importance_sampling]
    return correction is not None and correction[0]
