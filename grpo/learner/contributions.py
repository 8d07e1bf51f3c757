"""What each sample of a batch adds to the loss, and to the gradient that an update follows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from grpo.learner.figures import StepFigures
from grpo.learner.learner import Learner
from grpo.learner.passes import Prepared
from grpo.learner.statistics import Statistics
from grpo.values import Batch, TrainSample

Gradient = Sequence[Tensor | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """One sample's part in an update.

    Attributes:
        sample: Which one.
        loss: Its part of the loss: all of them together are the loss.
        grad_norm: Length of its gradient, before clipping.
        grad_share: How much of the whole gradient it brings, along that gradient: all of them
            together are 1, and one that pulls the other way is negative.
    """

    sample: TrainSample
    loss: float
    grad_norm: float
    grad_share: float


def explain_update(learner: Learner, batch: Batch) -> list[list[Contribution]]:
    """Take an update apart, leaving the weights as they are.

    Args:
        learner: One rank, alone, with the weights before the update.
        batch: What it is about to learn from.

    Returns:
        For each mini-batch, as if it were the first, its samples; those without loss tokens add
        nothing and are left out.
    """
    assert learner.accelerator.num_processes == 1, "the parts are those of one rank"
    plan = learner.planner.plan(batch.samples)
    alone = [[(member,) for member in learner.planner.weigh(part.samples)] for part in plan]
    figures = StepFigures()
    prepared = learner.prepare(alone, batch, figures)
    return [
        list(_explain_mini_batch(learner, share, figures, part.normaliser))
        for part, share in zip(plan, prepared, strict=True)
    ]


def _explain_mini_batch(
    learner: Learner, share: Sequence[Prepared], figures: StepFigures, normaliser: int
) -> Iterator[Contribution]:
    weights = [weight for weight in learner.policy.parameters() if weight.requires_grad]
    learner.optimizer.zero_grad()
    for found in share:
        _backward(learner, found, figures, normaliser)
    whole: Gradient = [weight.grad for weight in weights]
    squared = _dot(whole, whole)
    for found in share:
        learner.optimizer.zero_grad()
        loss = _backward(learner, found, figures, normaliser)
        own: Gradient = [weight.grad for weight in weights]
        yield Contribution(
            sample=found.samples[0],
            loss=loss,
            grad_norm=_dot(own, own) ** 0.5,
            grad_share=_dot(own, whole) / squared if squared else 0.0,
        )
    learner.optimizer.zero_grad()


def _backward(learner: Learner, found: Prepared, figures: StepFigures, normaliser: int) -> float:
    loss = learner.microbatch_loss(found, Statistics(), figures, first=True) / normaliser
    learner.accelerator.backward(loss)
    return float(loss.detach())


def _dot(one: Gradient, other: Gradient) -> float:
    products = [
        torch.sum(a.double() * b.double())
        for a, b in zip(one, other, strict=True)
        if a is not None and b is not None
    ]
    return float(torch.stack(products).sum()) if products else 0.0
