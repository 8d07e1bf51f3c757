"""What an update did, in figures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateReport:
    """What an update did; the same on every rank.

    Attributes:
        metrics: By name; see docs/metrics.md.
        skipped: Why the weights were left alone; None when they were updated.
    """

    metrics: Mapping[str, float]
    skipped: str | None = None


def summarise(sums: Mapping[str, float], maxima: Mapping[str, float]) -> dict[str, float]:
    """Turn a step's sums and maxima into metrics; see docs/metrics.md for each one's meaning."""
    tokens = max(sums["tokens"], 1.0)
    metrics = {
        "loss": sums["loss"],
        "policy_loss": sums["policy_loss"],
        "entropy": sums["entropy"] / tokens,
        "ratio/mean": sums["ratio"] / tokens,
        "ratio/max": maxima["ratio"],
        "clip_ratio/low_mean": sums["clipped_low"] / tokens,
        "clip_ratio/high_mean": sums["clipped_high"] / tokens,
        "clip_ratio/region_mean": sums["clipped"] / tokens,
        "sampling/sampling_logp_difference/mean": sums["sampler_difference"] / tokens,
        "sampling/sampling_logp_difference/max": maxima["sampler_difference"],
        "num_loss_tokens": sums["tokens"],
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
