"""One rank of the learner: the policy, its optimizer and the update."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor

from grpo.algorithms.advantages import UNCENTRED
from grpo.learner import invariants
from grpo.learner.batching import MicroBatch
from grpo.learner.begun_update import BegunUpdate, takes_head_start
from grpo.learner.coefficients import Coefficients
from grpo.learner.figures import StepFigures
from grpo.learner.gradient import GradientSum
from grpo.learner.guard import Guard
from grpo.learner.microbatch import compute_microbatch_loss
from grpo.learner.optimizer import build_optimizer, set_learning_rate
from grpo.learner.options import LearnerOptions
from grpo.learner.parallel import clip_gradient, distribute_policy, load_for_rank
from grpo.learner.passes import Passes, Prepared, needs_scores
from grpo.learner.planning import MiniBatch, Planner
from grpo.learner.preparing import prepare_updates
from grpo.learner.reference import make_reference
from grpo.learner.report import UpdateReport, why_skip
from grpo.learner.served import gather_push, lay_out_push
from grpo.learner.state import LearnerState
from grpo.learner.statistics import Statistics
from grpo.seeding import derive_seed, seed_everything
from grpo.values import Batch, TrainSample


class Learner:
    """The policy in training, on one device.

    Args:
        options: What to train, and how.
    """

    def __init__(self, options: LearnerOptions) -> None:
        self.options = options
        mixed_precision = "bf16" if options.precision == "bfloat16" else "no"
        self.accelerator = Accelerator(cpu=options.use_cpu, mixed_precision=mixed_precision)
        # Weights that are drawn, as an adapter's are, must be the same on every rank.
        seed_everything(derive_seed(options.seed, "policy"))
        self.policy = load_for_rank(options, self.accelerator, trainable=True)
        seed_everything(derive_seed(options.seed, "learner", self.accelerator.process_index))
        self._wrapped = distribute_policy(
            self.policy, self.accelerator, options.sharding, trainable=True
        )
        self.reference = make_reference(options, self.policy, self.accelerator)
        # After the weights are where they stay: sharding replaces every parameter by its shard.
        self.optimizer: Any = build_optimizer(self.policy, options)
        self._guard = Guard(options.on_breach)
        self._passes = Passes(
            self.policy,
            self._wrapped,
            self.reference,
            accelerator=self.accelerator,
            guard=self._guard,
            options=options,
        )
        self.coefficients = Coefficients(options)
        self.planner = Planner(
            options,
            rank=self.accelerator.process_index,
            world_size=self.accelerator.num_processes,
        )
        self._ahead: BegunUpdate | None = None
        self.updates_done = 0
        self.policy_version = 0
        self.state = LearnerState(self)

    @property
    def device(self) -> torch.device:
        """Where the policy is."""
        return self.accelerator.device

    @property
    def num_passes(self) -> int:
        """Passes made so far; it may be looked at from another thread."""
        return self._passes.num_done

    def learn_ahead(self, step: int, samples: Sequence[TrainSample]) -> float:
        """Begin the update of a step while the rest of its batch is still being sampled.

        Every micro-batch that is full has its passes; what is left over waits for more, or for
        `update`. The update is the same to the last bit as if it had begun with the whole batch.

        Args:
            step: Whose batch begins with them, or goes on. What was begun of another is forgotten.
            samples: The next whole groups, in the batch's order.

        Returns:
            Seconds of work.

        Raises:
            InvariantBroken: If something that must hold does not.
            UserError: If a sample is longer than the token budget.
        """
        assert takes_head_start(self.options), "such a batch is learned from whole"
        started = time.perf_counter()
        if self._ahead is None or self._ahead.step != step:
            gradient = self._begin_gradient(StepFigures())
            self._ahead = BegunUpdate(step, self.planner, gradient, self._passes.prepare)
        self._ahead.add(samples)
        return time.perf_counter() - started

    def update(self, batch: Batch) -> UpdateReport:
        """Learn from a batch: `num_iterations` passes of `num_mini_batches` updates each.

        Every rank is given the whole batch and takes its share, so that all of them know the same
        normaliser. An update whose loss or gradient is not finite is not applied, and ends the
        work on this batch.

        Args:
            batch: The global batch.

        Raises:
            InvariantBroken: If something that must hold does not.
            UserError: If a sample is longer than the token budget.
        """
        started = time.perf_counter()
        ahead = self._take_ahead(batch)
        invariants.check_batch(batch)
        if self.options.objective.advantage_estimator not in UNCENTRED:
            with self._guard:
                invariants.check_group_means(batch.samples)
        plan = ahead.plan_rest(batch) if ahead else self.planner.plan(batch.samples)
        if not plan:
            return UpdateReport(metrics={"num_loss_tokens": 0.0}, skipped="no loss tokens")
        figures = StepFigures()
        prepared = self.prepare([part.microbatches for part in plan], batch, figures)
        skipped = self._iterate(
            plan, prepared, batch.step, figures, begun=ahead.gradient if ahead else None
        )
        metrics = figures.summarise() | {
            "beta": self.coefficients.beta,
            "entropy_coef": self.coefficients.entropy_coef,
            "num_loss_tokens": float(batch.num_loss_tokens),
            "ahead_fraction": (ahead.num_tokens if ahead else 0) / batch.num_loss_tokens,
            "seconds": time.perf_counter() - started,
        }
        if skipped is None:
            self.coefficients.follow(
                kl=metrics.get("kl"), entropy=metrics["entropy"], num_samples=len(batch.samples)
            )
        return UpdateReport(
            metrics=metrics,
            skipped=skipped if figures.num_applied == 0 else None,
            non_finite=skipped,
            breaches=self._gather_breaches(),
        )

    def prepare(
        self, plan: Sequence[Sequence[MicroBatch]], batch: Batch, figures: StepFigures
    ) -> list[list[Prepared]]:
        """Score the batch where that must come before the first update on it."""
        if not needs_scores(self.options):
            return [[self._passes.prepare(micro) for micro in share] for share in plan]
        now = {"policy_version": self.policy_version, "untrained": self.updates_done == 0}
        scored = [[self._passes.score(micro, **now) for micro in share] for share in plan]
        if self.reference is not None:
            self.reference.rest()
        return prepare_updates(
            scored,
            batch.samples,
            objective=self.options.objective,
            beta=self.coefficients.beta,
            gather=self._gather,
            figures=figures,
        )

    def _iterate(
        self,
        plan: Sequence[MiniBatch],
        prepared: Sequence[Sequence[Prepared]],
        step: int,
        figures: StepFigures,
        begun: GradientSum | None,
    ) -> str | None:
        """Make the updates; returns why one of them was not applied, if it was not."""
        for _ in range(self.options.num_iterations):
            for part, share in zip(plan, prepared, strict=True):
                skipped = self._optimize(part, share, step, figures, begun)
                if skipped is not None:
                    return skipped
        return None

    def _optimize(
        self,
        part: MiniBatch,
        share: Sequence[Prepared],
        step: int,
        figures: StepFigures,
        begun: GradientSum | None,
    ) -> str | None:
        """Make one update from this rank's micro-batches, and what was begun of it."""
        rate = set_learning_rate(self.optimizer, self.updates_done, self.options)
        gradient = begun or self._begin_gradient(figures)
        for index, found in enumerate(share):
            gradient.add(found, last=index == len(share) - 1)
        sums, maxima = gradient.finish(
            self.policy.parameters(), part.normaliser, gather=self._gather
        )
        grad_norm = clip_gradient(self.policy, self.options.max_grad_norm or float("inf"))
        invariants.check_learned_tokens(step, learned=sums["tokens"], counted=part.num_tokens)
        if self.options.check_sampler_logprobs:
            with self._guard:
                invariants.check_mean_difference(
                    step,
                    total=sums["own_difference"],
                    num_tokens=sums["own_tokens"],
                    bound=invariants.sampler_bound(self.options),
                )
        skipped = why_skip(sums["loss"], grad_norm)
        if skipped is None:
            self.optimizer.step()
            self.updates_done += 1
            if self.reference is not None:
                self.reference.follow(self.policy, self.updates_done)
        self.optimizer.zero_grad()
        figures.add(
            sums,
            maxima,
            grad_norm=grad_norm,
            learning_rate=rate,
            num_microbatches=gradient.num_microbatches * self.accelerator.num_processes,
            applied=skipped is None,
        )
        return skipped

    def _begin_gradient(self, figures: StepFigures) -> GradientSum:
        self.optimizer.zero_grad()
        first = figures.num_applied == 0
        return GradientSum(
            self._wrapped,
            self.accelerator,
            lambda found, statistics: self.microbatch_loss(found, statistics, figures, first=first),
        )

    def _take_ahead(self, batch: Batch) -> BegunUpdate | None:
        """What was learned of this batch before."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead.step != batch.step:
            return None
        ahead.check(batch)
        return ahead

    def microbatch_loss(
        self, found: Prepared, statistics: Statistics, figures: StepFigures, *, first: bool
    ) -> Tensor:
        """Compute a micro-batch's share of the loss before the normaliser, its gradient to come.

        Args:
            found: The micro-batch.
            statistics: Takes its figures.
            figures: Of the step so far.
            first: Whether no update was made on its batch yet.
        """
        scores = self._passes.learn(
            found,
            first=first,
            policy_version=self.policy_version,
            untrained=self.updates_done == 0,
        )
        return compute_microbatch_loss(
            scores,
            found.tensors,
            objective=self.options.objective,
            beta=self.coefficients.beta,
            entropy_coef=self.coefficients.entropy_coef,
            mean_importance=figures.mean_importance,
            statistics=statistics,
        )

    def score(
        self, prompt_ids: Sequence[int], completion_ids: Sequence[int], temperature: float = 1.0
    ) -> tuple[float, ...]:
        """Compute each token's log-probability, in nats."""
        return self._passes.score_text(prompt_ids, completion_ids, temperature)

    def lay_out_weights(self) -> list[tuple[str, Tensor]]:
        """As `grpo.learner.served.lay_out_push`."""
        return lay_out_push(self.policy.model, self.options)

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """As `grpo.learner.served.gather_push`."""
        return gather_push(self.policy.model, self.options)

    def _gather_breaches(self) -> tuple[str, ...]:
        """What every rank's checks found; nothing where a breach stops the run."""
        kept = self._guard.take()
        return tuple(gather_object(kept)) if self._guard.warns else ()

    def _gather(self, values: Tensor) -> Tensor:
        return cast("Tensor", self.accelerator.gather(values))
