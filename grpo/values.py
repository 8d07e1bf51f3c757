"""The values of a step, from a finished completion to the batch that is learned from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from verifiers.problem import Problem
from verifiers.verdict import Verdict

FinishReason = Literal["stop", "length", "abort"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRequest:
    """One group to sample: a prompt and how many completions of it.

    Attributes:
        problem_id: Which problem the completions answer.
        prompt_ids: The prompt's token ids.
        seeds: One seed for each completion; their number is the group's size.
    """

    problem_id: str
    prompt_ids: tuple[int, ...]
    seeds: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOptions:
    """How completions are drawn, the same for every request of a call.

    Attributes:
        temperature: 0 is greedy.
        top_p: Nucleus; 1 is off.
        top_k: Highest-probability tokens kept; -1 is off.
        min_p: Smallest probability kept, relative to the highest; 0 is off.
        max_completion_length: Tokens a completion may have.
        stop_token_ids: Token ids that end a completion; the one that did is part of it.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    max_completion_length: int
    stop_token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One sampled completion.

    Engines keep what is known of every token packed (`grpo.packed`); it reads like a tuple.

    Attributes:
        problem_id: Which problem it answers.
        member: Its place in the group, 0..K-1.
        prompt_ids: The prompt's token ids.
        completion_ids: The sampled token ids, the stop token included.
        logprobs: Log-probability of each sampled token under the distribution it was drawn from
            (temperature and nucleus applied), in nats; as long as `completion_ids`.
        text: `completion_ids` decoded, special tokens removed.
        finish_reason: `stop`, `length` (cut off at the limit) or `abort`.
        policy_versions: Version of the policy that drew each token; as long as `completion_ids`.
        seed: What it was drawn with.
    """

    problem_id: str
    member: int
    prompt_ids: Sequence[int]
    completion_ids: Sequence[int]
    logprobs: Sequence[float]
    text: str
    finish_reason: FinishReason
    policy_versions: Sequence[int]
    seed: int

    @property
    def truncated(self) -> bool:
        """Whether the length limit cut it off."""
        return self.finish_reason == "length"

    @property
    def num_tokens(self) -> int:
        """Of prompt and completion."""
        return len(self.prompt_ids) + len(self.completion_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRollout:
    """A rollout with what was found out about it.

    Attributes:
        rollout: The completion.
        verdict: The finding.
        reward: What the reward policy makes of the verdict; None when the rollout could not be
            verified.
        reward_parts: Weight and value of each reward that it is the sum of, where there are
            several.
    """

    rollout: Rollout
    verdict: Verdict
    reward: float | None
    reward_parts: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredGroup:
    """A problem with all its completions.

    Attributes:
        problem: What was asked.
        members: The rollouts in member order, the unverified ones included.
    """

    problem: Problem
    members: tuple[ScoredRollout, ...]

    @property
    def rewards(self) -> tuple[float, ...]:
        """Rewards of the verified members, in member order."""
        return tuple(m.reward for m in self.members if m.reward is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSample:
    """One completion as the learner sees it.

    Attributes:
        problem_id: Which problem it answers.
        member: Its place in the group.
        prompt_ids: The prompt's token ids.
        completion_ids: The completion's token ids; every one of them is a loss token unless
            `masked`.
        sampler_logprobs: As `Rollout.logprobs`.
        advantage: One number for the whole completion.
        policy_version: Oldest version among its tokens.
        masked: True where the completion must carry no loss (a truncated one, by configuration).
        reward: What the advantage was computed from, for a learner that takes the KL off it.
        reward_parts: As `ScoredRollout.reward_parts`.
        group: Which of the problem's groups in the batch it is in; a problem may be there twice.
    """

    problem_id: str
    member: int
    prompt_ids: Sequence[int]
    completion_ids: Sequence[int]
    sampler_logprobs: Sequence[float]
    advantage: float
    policy_version: int
    masked: bool = False
    reward: float = 0.0
    reward_parts: tuple[tuple[float, float], ...] = ()
    group: int = 0

    @property
    def group_key(self) -> tuple[str, int]:
        """What the members of its group have in common, and no other sample of the batch."""
        return self.problem_id, self.group

    @property
    def num_tokens(self) -> int:
        """Length of prompt and completion together, in tokens."""
        return len(self.prompt_ids) + len(self.completion_ids)

    @property
    def num_loss_tokens(self) -> int:
        """Tokens that carry loss."""
        return 0 if self.masked else len(self.completion_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Everything one optimizer step learns from.

    Attributes:
        step: The step it belongs to, from 1.
        samples: In a fixed order: by problem, then by member.
        num_loss_tokens: Loss tokens of the whole batch, over all ranks: the loss's normaliser.
    """

    step: int
    samples: tuple[TrainSample, ...]
    num_loss_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightPush:
    """What an engine answers to a push of weights.

    Attributes:
        policy_version: The version it serves now.
        checksum: Of the bytes it received.
        seconds: Wall seconds from the request to the answer.
        fetch_seconds: Of these, until the bytes were in its reach; it went on generating.
        pause_seconds: Of these, in which it could not generate.
    """

    policy_version: int
    checksum: str
    seconds: float
    fetch_seconds: float
    pause_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What happened in a step.

    Attributes:
        step: From 1.
        policy_version: The version that the step produced.
        metrics: By name; see docs/metrics.md.
        dropped: How many rollouts were left out of the batch, by reason.
        skipped: Why the policy was left as it is; None when it was updated.
        remark: What else a person should know of it.
    """

    step: int
    policy_version: int
    metrics: Mapping[str, float]
    dropped: Mapping[str, int] = field(default_factory=dict[str, int])
    skipped: str | None = None
    remark: str | None = None
