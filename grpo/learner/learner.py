"""One rank of the learner: the policy, its optimizer and the update."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import torch
from accelerate import Accelerator
from torch import Tensor

from grpo.checkpoints import LEARNER, POLICY
from grpo.learner import invariants
from grpo.learner.batching import (
    MicroBatch,
    MicroBatchTensors,
    build_tensors,
    plan_microbatches,
    weigh_samples,
)
from grpo.learner.microbatch import TokenScores, compute_microbatch_loss
from grpo.learner.optimizer import build_optimizer
from grpo.learner.options import LearnerOptions
from grpo.learner.policy import load_policy
from grpo.learner.report import UpdateReport, summarise, why_skip
from grpo.learner.saving import (
    capture_random_state,
    load_policy_weights,
    restore_random_state,
    save_policy,
)
from grpo.learner.schedule import compute_learning_rate
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
        seed_everything(derive_seed(options.seed, "learner", self.accelerator.process_index))
        self.policy = load_policy(options, trainable=True)
        self.reference = load_policy(options, trainable=False) if options.beta > 0 else None
        self.optimizer: Any = build_optimizer(self.policy, options)
        self._wrapped: Any
        self._wrapped, self.optimizer = self.accelerator.prepare(self.policy, self.optimizer)
        self.policy.check_output_layer()
        if self.reference is not None:
            self.reference.to(self.device)
        self.updates_done = 0
        self.policy_version = 0

    @property
    def device(self) -> torch.device:
        """Where the policy is."""
        return self.accelerator.device

    def update(self, batch: Batch) -> UpdateReport:
        """Learn from a batch: one optimizer step.

        Every rank is given the whole batch and takes its share, so that all of them know the same
        normaliser.

        Args:
            batch: The global batch.

        Raises:
            InvariantBroken: If something that must hold does not.
            UserError: If a sample is longer than the token budget.
        """
        started = time.perf_counter()
        invariants.check_batch(batch)
        share = self._plan(batch)
        if not share:
            return UpdateReport(metrics={"num_loss_tokens": 0.0}, skipped="no loss tokens")
        rate = self._set_learning_rate()
        statistics = Statistics()
        self.optimizer.zero_grad()
        for index, microbatch in enumerate(share):
            last = index == len(share) - 1
            with nullcontext() if last else self.accelerator.no_sync(self._wrapped):
                loss = self._microbatch_loss(microbatch, statistics)
                # Gradient exchange averages over ranks; the weights in the loss are for the sum.
                self.accelerator.backward(loss * self.accelerator.num_processes)
        grad_norm = self._clip_gradient()
        sums, maxima = statistics.join(self._gather)
        invariants.check_ratio_is_one(batch.step, sums["ratio"], maxima["ratio"], sums["tokens"])
        skipped = why_skip(sums["loss"], grad_norm)
        if skipped is None:
            self.optimizer.step()
            self.updates_done += 1
        self.optimizer.zero_grad()
        metrics = summarise(sums, maxima) | {
            "grad_norm": grad_norm,
            "learning_rate": rate,
            "num_microbatches": float(len(share) * self.accelerator.num_processes),
            "seconds": time.perf_counter() - started,
        }
        return UpdateReport(metrics=metrics, skipped=skipped)

    def score(self, prompt_ids: Sequence[int], completion_ids: Sequence[int]) -> tuple[float, ...]:
        """Compute each token's log-probability at temperature 1, as engines score a probe."""
        ids_B_T = torch.tensor([[*prompt_ids, *completion_ids]], device=self.device)
        first = len(prompt_ids) - 1
        positions_N = torch.arange(first, first + len(completion_ids), device=self.device)
        targets_N = torch.tensor(completion_ids, dtype=torch.long, device=self.device)
        with torch.no_grad(), self.accelerator.autocast():
            logprobs_N, _ = self.policy(ids_B_T, positions_N, targets_N, temperature=1.0)
        return tuple(logprobs_N.tolist())

    def named_weights(self) -> list[tuple[str, Tensor]]:
        """List every weight once, under its Hugging Face name, in the precision that is served.

        A weight that is tied to another is listed under the first of its names only. The tensors
        may share memory with the policy: they are to be read before the next update.
        """
        served = torch.bfloat16 if self.options.precision == "bfloat16" else torch.float32
        first_of = {
            tensor.data_ptr(): name
            for name, tensor in reversed(self.policy.model.state_dict().items())
        }
        return [
            (name, tensor.detach().to(served))
            for name, tensor in self.policy.model.state_dict().items()
            if first_of[tensor.data_ptr()] == name
        ]

    def save(self, folder: Path) -> None:
        """Write this rank's part of a checkpoint; returns once every rank has written its own.

        Args:
            folder: As `grpo.checkpoints.write_checkpoint` gives it, the same for every rank.
        """
        own = folder / LEARNER
        own.mkdir(parents=True, exist_ok=True)
        if self.accelerator.is_main_process:
            save_policy(self.policy.model, self.options.model, folder / POLICY)
            state = {
                "optimizer": self.optimizer.state_dict()["state"],
                "updates_done": self.updates_done,
                "policy_version": self.policy_version,
            }
            torch.save(state, own / "optimizer.pt")
        torch.save(capture_random_state(), own / f"random-{self.accelerator.process_index}.pt")
        self.accelerator.wait_for_everyone()

    def load(self, folder: Path) -> None:
        """Go on from a checkpoint, exactly, on the same number of ranks.

        Every setting of the optimizer is the options', not the checkpoint's. A rank that the
        checkpoint knows nothing of keeps the random state it was started with.

        Args:
            folder: A whole checkpoint.

        Raises:
            UserError: If it is of another model.
        """
        load_policy_weights(self.policy.model, folder / POLICY)
        state = torch.load(folder / LEARNER / "optimizer.pt", map_location="cpu", weights_only=True)
        settings = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state["optimizer"], "param_groups": settings})
        self.updates_done = state["updates_done"]
        self.policy_version = state["policy_version"]
        random_state = folder / LEARNER / f"random-{self.accelerator.process_index}.pt"
        if random_state.is_file():
            restore_random_state(torch.load(random_state, weights_only=True))

    def _plan(self, batch: Batch) -> list[MicroBatch]:
        samples = weigh_samples(
            batch.samples,
            reduction=self.options.objective.loss_reduction,
            max_completion_length=self.options.max_completion_length,
        )
        shares = plan_microbatches(
            samples,
            max_tokens=self.options.max_tokens_per_microbatch,
            world_size=self.accelerator.num_processes,
        )
        return shares[self.accelerator.process_index]

    def _microbatch_loss(self, microbatch: MicroBatch, statistics: Statistics) -> Tensor:
        tensors = build_tensors(microbatch, self.device)
        chosen = (tensors.input_ids, tensors.positions, tensors.targets)
        reference_logprobs = None
        if self.reference is not None:
            with torch.no_grad(), self.accelerator.autocast():
                reference_logprobs, _ = self.reference(*chosen)
        logprobs, entropies = self._wrapped(*chosen)
        scores = TokenScores(
            logprobs=logprobs,
            entropies=entropies,
            # The batch is used once, so the policy before its first update is the policy itself.
            old_logprobs=logprobs.detach(),
            reference_logprobs=reference_logprobs,
        )
        self._check(scores, tensors, [member.sample for member in microbatch])
        return compute_microbatch_loss(
            scores,
            tensors,
            objective=self.options.objective,
            beta=self.options.beta,
            statistics=statistics,
        )

    def _check(
        self, scores: TokenScores, tensors: MicroBatchTensors, samples: Sequence[TrainSample]
    ) -> None:
        """Check what must hold of a micro-batch before its loss is used."""
        precision = self.options.precision
        invariants.check_loss_positions(tensors.sequence, samples)
        logprobs = scores.logprobs.detach()
        if scores.reference_logprobs is not None and self.updates_done == 0:
            invariants.check_same_logprobs(
                "kl_zero_at_first_step",
                (logprobs - scores.reference_logprobs).abs(),
                tensors.sequence,
                samples,
                invariants.reference_bound(precision),
            )
        if self.options.check_sampler_logprobs:
            invariants.check_same_logprobs(
                "sampler_logprobs",
                (logprobs - tensors.sampler_logprobs).abs(),
                tensors.sequence,
                [s if s.policy_version == self.policy_version else None for s in samples],
                invariants.sampler_bound(precision, self.options.max_logprob_difference),
            )

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
        limit = self.options.max_grad_norm or float("inf")
        norm = self.accelerator.clip_grad_norm_(self._wrapped.parameters(), limit)
        assert norm is not None, "only engines that clip by themselves give no norm"
        return float(norm)

    def _gather(self, values: Tensor) -> Tensor:
        return cast("Tensor", self.accelerator.gather(values))
