"""Everything that says what an update optimises, as one value."""

from __future__ import annotations

import math
from dataclasses import dataclass

from grpo.algorithms.advantages import ScaleRewards, Scaling


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One complete training objective; a parameter that its parts do not use has no effect.

    Attributes:
        advantage_estimator: A key of `ADVANTAGES`.
        scale_rewards: What centred rewards are divided by.
        std_ddof: What the divisor of that standard deviation falls short of the count by.
        std_epsilon: Added to that standard deviation.
        policy_loss: A key of `LOSSES`.
        loss_reduction: A key of `REDUCTIONS`.
        epsilon: How far the ratio may fall below 1; for `dppo_tv`, the probability.
        epsilon_high: How far it may rise above 1; for `cispo` the largest weight itself; for
            `dppo_tv`, how far the probability may rise.
        delta: Largest ratio that counts where the advantage is negative; None is no limit.
        sapo_temperature_pos: How fast SAPO's gate closes for positive advantages.
        sapo_temperature_neg: The same for the others.
        vespo_k_pos: Exponent of VESPO's weight for positive advantages.
        vespo_lambda_pos: Decay of VESPO's weight for positive advantages.
        vespo_k_neg: Exponent for the others.
        vespo_lambda_neg: Decay for the others.
        dppo_kl_tau: Weight of DPPO's squared log-ratio.
        old_logprobs: What ratios compare the policy with: the `learner`'s own log-probabilities
            from before the first update on a batch, or the `sampler`'s.
        kl_placement: Whether beta times the KL stands in the `loss` or is taken off the `reward`.
        kl_estimator: A key of `KL_ESTIMATORS`.
        importance_sampling: A key of `IMPORTANCE_SAMPLING`.
        importance_min: Smallest ratio of learner to sampler that counts.
        importance_max: Largest ratio of learner to sampler that counts.
        importance_normalise: Bring the mean weight of a batch to 1.
        rejection_sampling: A key of `REJECTION_SAMPLING`.
        rejection_min: Smallest statistic that is kept.
        rejection_max: Largest statistic that is kept.
        off_policy_mask_threshold: Largest mean log sampler - log policy of a completion with a
            negative advantage; None keeps all.
    """

    advantage_estimator: str = "grpo"
    scale_rewards: ScaleRewards = "group"
    std_ddof: int = 1
    std_epsilon: float = 1e-4
    policy_loss: str = "ppo_clip"
    loss_reduction: str = "token_mean"
    epsilon: float = 0.2
    epsilon_high: float = 0.2
    delta: float | None = None
    sapo_temperature_pos: float = 1.0
    sapo_temperature_neg: float = 1.05
    vespo_k_pos: float = 2.0
    vespo_lambda_pos: float = 3.0
    vespo_k_neg: float = 3.0
    vespo_lambda_neg: float = 2.0
    dppo_kl_tau: float = 1e-3
    old_logprobs: str = "learner"
    kl_placement: str = "loss"
    kl_estimator: str = "k3_ratio"
    importance_sampling: str = "off"
    importance_min: float = 0.0
    importance_max: float = 2.0
    importance_normalise: bool = False
    rejection_sampling: str = "off"
    rejection_min: float = 0.0
    rejection_max: float = math.inf
    off_policy_mask_threshold: float | None = None

    @property
    def scaling(self) -> Scaling:
        """What advantages are divided by."""
        return Scaling(by=self.scale_rewards, ddof=self.std_ddof, epsilon=self.std_epsilon)
