"""Which problems are worth a visit now, by how often the policy solved them last."""

from __future__ import annotations

from typing import Literal

PromptSampling = Literal["uniform", "pass_rate_band", "adaptive"]
# A problem that has nothing to teach now is still tried this often: the policy changes.
REVISIT = 0.1


def compute_acceptance(
    strategy: PromptSampling, pass_rate: float | None, *, lowest: float, highest: float
) -> float:
    """Probability of visiting a problem whose turn has come.

    Args:
        strategy: `uniform` visits each; `pass_rate_band` those within the band; `adaptive` in
            proportion to the variance of their rewards, which is largest at one half.
        pass_rate: Of the problem's last group; None while there is none, which is always visited.
        lowest: Of the band.
        highest: Of the band.

    Example:
        >>> compute_acceptance("adaptive", 0.5, lowest=0.1, highest=0.9)
        1.0
    """
    if pass_rate is None or strategy == "uniform":
        return 1.0
    if strategy == "pass_rate_band":
        return 1.0 if lowest <= pass_rate <= highest else REVISIT
    return max(REVISIT, 4 * pass_rate * (1 - pass_rate))
