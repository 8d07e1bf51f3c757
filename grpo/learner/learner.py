"""One rank of the learner: the policy, its optimizer and the update."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any, cast

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor

from grpo.algorithms.advantages import UNCENTRED
from grpo.learner import invariants
from grpo.learner.batching import MicroBatch, plan_microbatches, split_by_groups, weigh_samples
from grpo.learner.coefficients import Coefficients
from grpo.learner.figures import StepFigures
from grpo.learner.guard import Guard
from grpo.learner.microbatch import compute_microbatch_loss
from grpo.learner.optimizer import build_optimizer
from grpo.learner.options import LearnerOptions
from grpo.learner.packing import packs_samples
from grpo.learner.parallel import clip_gradient, distribute_policy, hold_exchange
from grpo.learner.passes import Passes, Prepared, needs_scores
from grpo.learner.policy import load_policy
from grpo.learner.preparing import prepare_updates
from grpo.learner.reference import make_reference
from grpo.learner.report import UpdateReport, why_skip
from grpo.learner.schedule import compute_learning_rate
from grpo.learner.served import gather_weights, lay_out_weights
from grpo.learner.state import LearnerState
from grpo.learner.statistics import Statistics
from grpo.seeding import derive_seed, seed_everything
from grpo.values import Batch


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
        self.policy = load_policy(options, trainable=True)
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
        # One pass gives old and new log-probabilities, so that every ratio is exactly 1.
        self._compares_with_itself = (
            options.objective.old_logprobs == "learner" and not needs_scores(options)
        )
        self.coefficients = Coefficients(options)
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
        invariants.check_batch(batch)
        if self.options.objective.advantage_estimator not in UNCENTRED:
            with self._guard:
                invariants.check_group_means(batch.samples)
        plan = self._plan(batch)
        if not plan:
            return UpdateReport(metrics={"num_loss_tokens": 0.0}, skipped="no loss tokens")
        figures = StepFigures()
        prepared = self.prepare(plan, batch, figures)
        skipped = self._iterate(prepared, self._count_tokens(batch), batch.step, figures)
        metrics = figures.summarise() | {
            "beta": self.coefficients.beta,
            "entropy_coef": self.coefficients.entropy_coef,
            "num_loss_tokens": float(batch.num_loss_tokens),
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

    def _plan(self, batch: Batch) -> list[list[MicroBatch]]:
        """This rank's micro-batches of each mini-batch, none of which is empty."""
        plan: list[list[MicroBatch]] = []
        for samples in split_by_groups(batch.samples, self.options.num_mini_batches):
            weighted = weigh_samples(
                samples,
                reduction=self.options.objective.loss_reduction,
                max_completion_length=self.options.max_completion_length,
            )
            shares = plan_microbatches(
                weighted,
                max_tokens=self.options.max_tokens_per_microbatch,
                world_size=self.accelerator.num_processes,
                packed=packs_samples(self.options),
            )
            plan.append(shares[self.accelerator.process_index])
        return plan

    def _count_tokens(self, batch: Batch) -> list[int]:
        """Loss tokens of each mini-batch, over all ranks."""
        parts = split_by_groups(batch.samples, self.options.num_mini_batches)
        return [sum(sample.num_loss_tokens for sample in samples) for samples in parts]

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
        prepared: Sequence[Sequence[Prepared]],
        num_tokens: Sequence[int],
        step: int,
        figures: StepFigures,
    ) -> str | None:
        """Make the updates; returns why one of them was not applied, if it was not."""
        for _ in range(self.options.num_iterations):
            for share, count in zip(prepared, num_tokens, strict=True):
                skipped = self._optimize(share, count, step, figures)
                if skipped is not None:
                    return skipped
        return None

    def _optimize(
        self, share: Sequence[Prepared], num_tokens: int, step: int, figures: StepFigures
    ) -> str | None:
        """Make one update from this rank's micro-batches, of so many loss tokens on all ranks."""
        first = figures.num_applied == 0
        rate = self._set_learning_rate()
        statistics = Statistics()
        self.optimizer.zero_grad()
        for index, found in enumerate(share):
            last = index == len(share) - 1
            with nullcontext() if last else hold_exchange(self._wrapped, self.accelerator):
                loss = self.microbatch_loss(found, statistics, figures, first=first)
                # Gradient exchange averages over ranks; the weights in the loss are for the sum.
                self.accelerator.backward(loss * self.accelerator.num_processes)
        grad_norm = self._clip_gradient()
        sums, maxima = statistics.join(self._gather)
        invariants.check_learned_tokens(step, learned=sums["tokens"], counted=num_tokens)
        if self._compares_with_itself:
            with self._guard:
                invariants.check_ratio_is_one(step, sums["ratio"], maxima["ratio"], sums["tokens"])
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
            num_microbatches=len(share) * self.accelerator.num_processes,
            applied=skipped is None,
        )
        return skipped

    def microbatch_loss(
        self, found: Prepared, statistics: Statistics, figures: StepFigures, *, first: bool
    ) -> Tensor:
        """Compute a micro-batch's share of the loss, with its gradient to come.

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
        ids_B_T = torch.tensor([[*prompt_ids, *completion_ids]], device=self.device)
        first = len(prompt_ids) - 1
        positions_N = torch.arange(first, first + len(completion_ids), device=self.device)
        targets_N = torch.tensor(completion_ids, dtype=torch.long, device=self.device)
        with torch.no_grad(), self.accelerator.autocast():
            logprobs_N, _ = self.policy(ids_B_T, positions_N, targets_N, temperature=temperature)
        return tuple(logprobs_N.tolist())

    def lay_out_weights(self) -> list[tuple[str, Tensor]]:
        """As `grpo.learner.served.lay_out_weights`."""
        return lay_out_weights(self.policy.model, self.options.precision)

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """As `grpo.learner.served.gather_weights`."""
        return gather_weights(self.policy.model, self.options.precision)

    def _set_learning_rate(self) -> float:
        rate = compute_learning_rate(
            self.updates_done,
            peak=self.options.learning_rate,
            schedule=self.options.lr_scheduler,
            warmup_steps=self.options.warmup_steps,
            total_steps=self.options.total_steps,
        )
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        return rate

    def _clip_gradient(self) -> float:
        return clip_gradient(self.policy, self.options.max_grad_norm or float("inf"))

    def _gather_breaches(self) -> tuple[str, ...]:
        """What every rank's checks found; nothing where a breach stops the run."""
        kept = self._guard.take()
        return tuple(gather_object(kept)) if self._guard.warns else ()

    def _gather(self, values: Tensor) -> Tensor:
        return cast("Tensor", self.accelerator.gather(values))
