"""What the loop needs of the parts that it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from grpo.evaluation.scores import EvaluationResult
from grpo.learner.errors import LearnerLost
from grpo.timing import StepTimes
from grpo.values import Batch, ScoredGroup, StepReport


@dataclass(slots=True, kw_only=True)
class Progress:
    """How far a run is: what a checkpoint remembers of the loop.

    Attributes:
        step: Steps finished.
        policy_version: Updates made; a step without signal makes none.
        num_drawn: Draws of problems that the finished steps used up.
    """

    step: int = 0
    policy_version: int = 0
    num_drawn: int = 0


class Update(Protocol):
    """What the learner reports of an update."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """By name."""
        ...

    @property
    def skipped(self) -> str | None:
        """Why the weights were left alone; None when they were updated."""
        ...

    @property
    def non_finite(self) -> str | None:
        """What was not finite in an update that was not applied."""
        ...

    @property
    def breaches(self) -> Sequence[str]:
        """Broken invariants, where they do not stop the run."""
        ...


class Learner(Protocol):
    """Improves the policy."""

    def update(self, batch: Batch) -> Update:
        """One optimizer step."""
        ...


class Publisher(Protocol):
    """Puts the learner's policy into the engines."""

    def publish(
        self,
        policy_version: int,
        probe: Sequence[int],
        on_wait: Callable[[], None] = lambda: None,
    ) -> Mapping[str, float]:
        """Push the weights, prove on the probe that they landed, and report what it cost.

        Args:
            policy_version: That the engines serve from now on.
            probe: Token ids to compare log-probabilities on.
            on_wait: Called while engines do not answer. They are left out once it raises
                `StopRequested`: they end with the run, and the step is worth having.

        Raises:
            InvariantBroken: An engine does not serve the learner's policy.
        """
        ...

    def confirm(self, on_wait: Callable[[], None] = lambda: None) -> Sequence[str]:
        """See that what was sampled since the push is of the policy that the learner still has.

        Args:
            on_wait: As for `publish`.

        Returns:
            Breaches that do not stop the run.

        Raises:
            InvariantBroken: It is not.
        """
        ...


class Evaluator(Protocol):
    """Scores the served policy on held-out problems."""

    def evaluate(
        self, *, step: int, policy_version: int
    ) -> tuple[EvaluationResult, tuple[ScoredGroup, ...]]:
        """Sample and score every held-out set."""
        ...


class Recorder(Protocol):
    """Keeps what happened, on disk and before the user's eyes."""

    def keep_rollouts(self, step: int, groups: Sequence[ScoredGroup]) -> None:
        """Write a step's rollouts."""
        ...

    def keep_breach(self, step: int, text: str) -> None:
        """Write and show a broken invariant that did not stop the run."""
        ...

    def keep_step(self, report: StepReport) -> None:
        """Write a step's metrics."""
        ...

    def keep_trace(self, step: int, times: StepTimes) -> None:
        """Write a step's timeline."""
        ...

    def keep_evaluation(self, result: EvaluationResult, groups: Sequence[ScoredGroup]) -> None:
        """Write an evaluation."""
        ...


class Recovery(Protocol):
    """Brings the learner back after its processes are lost."""

    def recover(self, progress: Progress, error: LearnerLost) -> None:
        """Set learner, engines and progress back to the last checkpoint.

        Raises:
            LearnerLost: It happened too often.
        """
        ...


class Checkpointer(Protocol):
    """Saves everything that training needs to go on."""

    def save(self, progress: Progress) -> None:
        """Begin to write a checkpoint, whole or not at all."""
        ...

    def consider(self, progress: Progress, result: EvaluationResult) -> None:
        """Keep this step's checkpoint for good, where it is the best so far."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When evaluations and checkpoints are due.

    Attributes:
        steps: The last step.
        eval_steps: Evaluate every so many; 0 only around training.
        save_steps: Save every so many; 0 only at the end.
        evaluate_first: Whether the untrained policy is still to be evaluated.
    """

    steps: int
    eval_steps: int
    save_steps: int
    evaluate_first: bool

    def evaluation_due(self, step: int) -> bool:
        """Whether to evaluate after this step."""
        return step == self.steps or bool(self.eval_steps and step % self.eval_steps == 0)

    def checkpoint_due(self, step: int) -> bool:
        """Whether to save after this step."""
        return step == self.steps or bool(self.save_steps and step % self.save_steps == 0)
