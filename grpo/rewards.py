"""The reward policy: what a verdict is worth."""

from __future__ import annotations

from collections.abc import Mapping

from verifiers.verdict import Status, Verdict


def compute_reward(verdict: Verdict, values: Mapping[Status, float]) -> float | None:
    """What a verdict is worth to the policy.

    Args:
        verdict: The finding.
        values: The reward of each status that counts as verified. A verifier that grades in parts
            lands between the values of `INCORRECT` (score 0) and `CORRECT` (score 1).

    Returns:
        The reward, or None where the submission could not be verified.

    Example:
        >>> from verifiers.verdict import Reason
        >>> half = Verdict(status=Status.INCORRECT, score=0.5, reason=Reason.TESTS_FAILED,
        verifier="code@1")
        >>> compute_reward(half, {Status.CORRECT: 1.0, Status.INCORRECT: -1.0})
        0.0
    """
    if verdict.score is None:
        return None
    if verdict.status in (Status.CORRECT, Status.INCORRECT):
        right, wrong = values[Status.CORRECT], values[Status.INCORRECT]
        return wrong + (right - wrong) * verdict.score
    return values[verdict.status]
