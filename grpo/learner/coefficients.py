"""The weights of the KL and of the entropy bonus, which may follow what training does."""

from __future__ import annotations

from typing import Any

from grpo.algorithms.controllers import EntropyBonus, adapt_beta
from grpo.learner.options import LearnerOptions


class Coefficients:
    """The two weights of a run, adjusted once a step; the same on every rank.

    Args:
        options: Their first values, and what they follow.
    """

    def __init__(self, options: LearnerOptions) -> None:
        self._options = options
        self._beta = options.beta
        self._bonus = EntropyBonus(coefficient=options.entropy_coef)

    @property
    def beta(self) -> float:
        """The KL's weight in this step."""
        return self._beta

    @property
    def entropy_coef(self) -> float:
        """The entropy bonus's weight in this step."""
        return self._bonus.applied(self._options.entropy_target)

    def follow(self, *, kl: float | None, entropy: float, num_samples: int) -> None:
        """Adjust both to what a step measured.

        Args:
            kl: Mean KL to the reference per token; None where there is no reference.
            entropy: Mean entropy per token.
            num_samples: Completions of the step.
        """
        options = self._options
        if kl is not None and options.kl_target is not None:
            self._beta = adapt_beta(
                self._beta,
                kl=kl,
                target=options.kl_target,
                num_samples=num_samples,
                horizon=options.kl_horizon,
            )
        if options.entropy_target is not None:
            self._bonus = self._bonus.after(
                entropy,
                target=options.entropy_target,
                delta=options.entropy_coef_delta,
                lowest=0.0,
                highest=options.entropy_coef_max,
            )

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {
            "beta": self._beta,
            "entropy_coef": self._bonus.coefficient,
            "last_entropy": self._bonus.last_entropy,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint; a weight that follows nothing is the configuration's.

        Args:
            state: As `state` gave it.
        """
        if self._options.kl_target is not None:
            self._beta = state["beta"]
        if self._options.entropy_target is not None:
            self._bonus = EntropyBonus(
                coefficient=state["entropy_coef"], last_entropy=state["last_entropy"]
            )
