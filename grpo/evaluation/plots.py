"""Curves of pass@k, for print: told apart by line and mark as well as by colour."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo.evaluation.comparison import choose_ks
from grpo.evaluation.scores import (
    Estimate,
    EvaluationResult,
    ProblemScore,
    SetScore,
    estimate_all,
)

# From dark to light, so that they differ in grey as well.
_COLOURS = ("#08306b", "#c4601a", "#86bf94", "#7b4fa0", "#a8a8a8", "#c9a227")
_MARKS = ("o", "s", "^", "D", "v", "P")
_LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)))
_WIDTH_IN, _HEIGHT_IN = 4.8, 3.2
_LEGEND_COLUMNS = 2
_LEGEND_ROW_IN = 0.2
_DPI = 200


def write_plots(results: Mapping[str, EvaluationResult], folder: Path, seed: int) -> list[Path]:
    """Write the curves of every set that the first evaluation has.

    Where all have one sample a problem, or nothing was verified, there is no curve and no file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    first = next(iter(results.values()))
    labels = shorten_names(list(results))
    files = []
    for score in first.sets:
        curves = {
            label: own
            for label, result in zip(labels, results.values(), strict=True)
            for own in result.sets
            if own.name == score.name
        }
        if max(own.num_samples for own in curves.values()) == 1:
            continue
        name = re.sub(r"[^\w.-]+", "-", score.name)
        title = f"{score.name}, {score.num_problems} problems"
        files += plot_pass_at_k(curves, folder / f"pass-at-k-{name}", title=title, seed=seed)
    return files


def shorten_names(names: Sequence[str]) -> list[str]:
    """Paths without the leading folders that they do not need to differ.

    Example:
        >>> shorten_names(["a/base/gsm8k", "a/tuned/gsm8k"])
        ['base/gsm8k', 'tuned/gsm8k']
    """
    parts = [[part for part in name.split("/") if part] for name in names]
    for length in range(1, max(map(len, parts)) + 1):
        short = ["/".join(each[-length:]) for each in parts]
        if len(set(short)) == len(set(names)):
            return short
    return list(names)


def plot_pass_at_k(
    curves: Mapping[str, SetScore], file: Path, *, title: str, seed: int
) -> list[Path]:
    """Draw pass@k over k for several evaluations of one set, each with its 95 % band.

    Args:
        curves: The set's scores, by the name in the legend.
        file: Without suffix; `.png` and `.svg` are written.
        title: Above the axes.
        seed: Of the bands' resampling.

    Returns:
        The files; none where no evaluation has a score to draw.
    """
    drawn = {name: estimate_curve(score.problems, seed) for name, score in curves.items()}
    if not any(drawn.values()):
        return []
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": "verigrad", "font.size": 9}):
        height = _HEIGHT_IN + _LEGEND_ROW_IN * math.ceil(len(curves) / _LEGEND_COLUMNS)
        figure = Figure(figsize=(_WIDTH_IN, height), layout="constrained")
        axes: Any = figure.subplots()
        for place, (name, estimates) in enumerate(drawn.items()):
            if estimates:
                _draw_curve(axes, name, estimates, place)
        _label_axes(axes, title, choose_ks(max(k for curve in drawn.values() for k in curve)))
        # Below the axes, where no curve can run through it.
        figure.legend(loc="outside lower center", ncols=_LEGEND_COLUMNS, frameon=False)
        files = [file.with_name(f"{file.name}.{suffix}") for suffix in ("png", "svg")]
        for path in files:
            metadata = {"Date": None} if path.suffix == ".svg" else {}
            figure.savefig(path, dpi=_DPI, metadata=metadata)
    return files


def estimate_curve(problems: Sequence[ProblemScore], seed: int) -> dict[int, Estimate]:
    """pass@k for every k that nearly all problems have verified samples for."""
    sizes = sorted(problem.num_samples for problem in problems)
    # A few problems with fewer samples are left out rather than all with more cut down.
    most = next((n for n in reversed(sizes) if sum(s >= n for s in sizes) >= 0.9 * len(sizes)), 0)
    return estimate_all("pass@", problems, choose_ks(most), seed) if most else {}


def _draw_curve(axes: Any, name: str, estimates: Mapping[int, Estimate], place: int) -> None:
    style = place % len(_COLOURS)
    ks = list(estimates)
    axes.plot(
        ks,
        [estimate.value for estimate in estimates.values()],
        color=_COLOURS[style],
        marker=_MARKS[style],
        linestyle=_LINES[style],
        markersize=4,
        # Half of the marks are hollow: greys alone would not tell six curves apart.
        markerfacecolor=_COLOURS[style] if style % 2 == 0 else "white",
        linewidth=1.4,
        label=name,
    )
    lows, highs = ([getattr(e, end) for e in estimates.values()] for end in ("low", "high"))
    axes.fill_between(ks, lows, highs, color=_COLOURS[style], alpha=0.15, linewidth=0)


def _label_axes(axes: Any, title: str, ks: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(ks, [str(k) for k in ks])
    axes.minorticks_off()
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("k, samples of a problem")
    axes.set_ylabel("pass@k, with 95 % band")
    axes.set_title(title, fontsize=9)
    axes.grid(visible=True, color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
