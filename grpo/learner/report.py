"""What an update did, in figures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateReport:
    """What the updates on a batch did; the same on every rank.

    Attributes:
        metrics: By name; see docs/metrics.md.
        skipped: Why the weights were left alone; None when they were updated.
        non_finite: What was not finite in an update that was not applied, whether or not others on
            the batch were.
        breaches: Broken invariants, where they do not stop the run.
    """

    metrics: Mapping[str, float]
    skipped: str | None = None
    non_finite: str | None = None
    breaches: tuple[str, ...] = ()


def summarise(
    sums: Mapping[str, float], maxima: Mapping[str, float], *, num_updates: int = 1
) -> dict[str, float]:
    """Turn a step's sums and maxima into metrics; see docs/metrics.md for each one's meaning.

    Args:
        sums: Over the loss tokens of all updates.
        maxima: Over the same tokens.
        num_updates: How many updates were tried.
    """
    tokens = max(sums["tokens"], 1.0)
    metrics = {
        "loss": sums["loss"] / num_updates,
        "policy_loss": sums["policy_loss"] / num_updates,
        "entropy": sums["entropy"] / tokens,
        "ratio/mean": sums["ratio"] / tokens,
        "ratio/max": maxima["ratio"],
        "clip_ratio/low_mean": sums["clipped_low"] / tokens,
        "clip_ratio/high_mean": sums["clipped_high"] / tokens,
        "clip_ratio/region_mean": sums["clipped"] / tokens,
        "sampling/sampling_logp_difference/mean": sums["sampler_difference"] / tokens,
        "sampling/sampling_logp_difference/max": maxima["sampler_difference"],
        "sampling/kl": sums["sampler_kl"] / tokens,
        "sampling/importance_weight_mean": sums["importance"] / tokens,
        "sampling/kept_fraction": sums["kept"] / tokens,
        "sampling/effective_sample_size": _effective_share(sums, tokens),
    }
    if "kl" in sums:
        metrics["kl"] = sums["kl"] / tokens
        metrics["kl_clamped"] = sums["kl_clamped"]
    return metrics


def why_skip(loss: float, grad_norm: float) -> str | None:
    """Say why an update must not be applied; None when it may."""
    if not math.isfinite(loss):
        return f"non-finite loss ({loss})"
    return None if math.isfinite(grad_norm) else f"non-finite gradient norm ({grad_norm})"


def _effective_share(sums: Mapping[str, float], tokens: float) -> float:
    """Kish's effective sample size of the importance weights, as a share of the tokens."""
    squared = sums["importance_squared"]
    return sums["importance"] ** 2 / (tokens * squared) if squared > 0 else 0.0
