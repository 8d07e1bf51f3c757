"""The reward policy: what a verdict is worth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from grpo.algorithms.overlong import compute_overlong_punishment
from verifiers.errors import UserError
from verifiers.verdict import Status, Verdict

# The name in `weights` of what the status itself is worth.
VERDICT = "verdict"
OVERLONG = "overlong"


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardPolicy:
    """What a run pays for.

    Attributes:
        values: The reward of each status that counts as verified. A verifier that grades in parts
            lands between the values of `INCORRECT` (score 0) and `CORRECT` (score 1).
        weights: Several rewards in the place of that one: the weight of each component of a
            verdict, `verdict` being the value above.
        overlong_buffer: Last so many tokens before the limit that are punished; 0 is off.
        overlong_penalty: What a completion of full length loses.
        max_completion_length: The limit.
    """

    values: Mapping[Status, float]
    weights: Mapping[str, float] = field(default_factory=dict[str, float])
    overlong_buffer: int = 0
    overlong_penalty: float = 1.0
    max_completion_length: int = 0

    @property
    def part_names(self) -> tuple[str, ...]:
        """What the parts of a reward are called, in their order."""
        names = tuple(self.weights) or (VERDICT,)
        return (*names, OVERLONG) if self.overlong_buffer else names


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """What a completion is paid.

    Attributes:
        total: The sum of weight times value over the parts.
        parts: Weight and value of each, where there are several.
    """

    total: float
    parts: tuple[tuple[float, float], ...] = ()


def compute_reward(verdict: Verdict, length: int, policy: RewardPolicy) -> Reward | None:
    """What a completion is worth to the policy.

    Args:
        verdict: The finding.
        length: Tokens of the completion.
        policy: What is paid for.

    Returns:
        The reward, or None where the submission could not be verified.

    Example:
        >>> from verifiers.verdict import Reason
        >>> half = Verdict(status=Status.INCORRECT, score=0.5, reason=Reason.TESTS_FAILED,
        verifier="code@1")
        >>> policy = RewardPolicy(values={Status.CORRECT: 1.0, Status.INCORRECT: -1.0})
        >>> compute_reward(half, 7, policy).total
        0.0
    """
    if verdict.score is None:
        return None
    parts = [
        (weight, _read_component(verdict, name, policy.values))
        for name, weight in (policy.weights or {VERDICT: 1.0}).items()
    ]
    if policy.overlong_buffer:
        punishment = compute_overlong_punishment(
            length,
            max_completion_length=policy.max_completion_length,
            buffer_length=policy.overlong_buffer,
        )
        parts.append((policy.overlong_penalty, punishment))
    total = math.fsum(weight * value for weight, value in parts)
    return Reward(total=total, parts=tuple(parts) if len(parts) > 1 else ())


def check_components(verdicts: Sequence[Verdict], policy: RewardPolicy) -> None:
    """Check that what is paid for exists, once some completion was found right.

    Raises:
        UserError: A weighted component is in no verdict.
    """
    if not any(verdict.status is Status.CORRECT for verdict in verdicts):
        return
    known = {VERDICT}.union(*(verdict.components for verdict in verdicts))
    for name in policy.weights:
        if name not in known:
            raise UserError(
                f"rewards.weights names the component {name!r}, but none of {len(verdicts)}"
                f" verdicts has it: they have {', '.join(sorted(known))}. Parts of a `composite`"
                " verifier are components under their names"
            )


def _read_component(verdict: Verdict, name: str, values: Mapping[Status, float]) -> float:
    if name != VERDICT:
        return verdict.components.get(name, 0.0)
    if verdict.status in (Status.CORRECT, Status.INCORRECT):
        assert verdict.score is not None, "a verified completion has a score"
        right, wrong = values[Status.CORRECT], values[Status.INCORRECT]
        return wrong + (right - wrong) * verdict.score
    return values[verdict.status]
