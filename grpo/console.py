"""What a person sees while a run goes on: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Self

from rich.console import Console as RichConsole
from rich.status import Status as LiveLine
from rich.table import Table

from grpo.evaluation.scores import Estimate, EvaluationResult, SetScore, compare_pass_at_1
from grpo.symptoms import Symptom
from grpo.values import StepReport
from grpo.waits import CAUSES, WORKED

_PLAIN_WIDTH = 110


class Console:
    """Prints a run's progress.

    Args:
        to_stderr: Leave standard output to the machine-readable report.
    """

    def __init__(self, *, to_stderr: bool = False) -> None:
        probe = RichConsole(stderr=to_stderr)
        self._rich = (
            probe if probe.is_terminal else RichConsole(stderr=to_stderr, width=_PLAIN_WIDTH)
        )
        self._steps = 0
        self._live: LiveLine | None = None
        self._last = ""
        self._first_step_at: float | None = None
        self._first_step = 0

    def expect_steps(self, steps: int) -> None:
        """Count the run's steps up to this many."""
        self._steps = steps

    def line(self, text: str) -> None:
        """Print a line that stays."""
        self._rich.print(text, markup=False, highlight=False, soft_wrap=True)

    def phase(self, name: str) -> None:
        """Show what the run is doing now; nothing where there is no terminal."""
        if not self._rich.is_terminal:
            return
        text = f"{name.replace('_', ' ')}{self._last}"
        if self._live is None:
            self._live = self._rich.status(text)
            self._live.start()
        else:
            self._live.update(text)

    def step(self, report: StepReport) -> None:
        """Print a step's line."""
        metrics = report.metrics
        now = time.perf_counter()
        if self._first_step_at is None:
            self._first_step_at, self._first_step = now, report.step
        parts = [f"step {report.step}/{self._steps}"]
        parts += [
            f"{label} {metrics[name]:.{digits}f}"
            for label, name, digits in _STEP_COLUMNS
            if name in metrics
        ]
        parts += [
            f"{label} {value:.2f}"
            for label, value in _find_losses(metrics).items()
            if value >= 0.01
        ]
        parts += [f"{metrics['time/step']:.2f} s", f"{self._time_left(report.step, now)} left"]
        if report.dropped:
            parts.append(
                "dropped "
                + ", ".join(f"{count} {reason}" for reason, count in sorted(report.dropped.items()))
            )
        if report.skipped:
            parts.append(f"no update: {report.skipped}")
        self._last = " · " + " · ".join(parts)
        self.line("  ".join(parts))
        if report.remark:
            self.line(f"  {report.remark}")

    def symptom(self, symptom: Symptom) -> None:
        """Print what is wrong with the run, and completions that show it."""
        self.line(f"warning [{symptom.name}]: {symptom.text}")
        for example in symptom.examples:
            self.line(f"    {example}")

    def first_step(self, seconds: Mapping[str, float]) -> None:
        """Print how long the first step took to come, by part."""
        parts = " + ".join(f"{name} {value:.1f}" for name, value in seconds.items())
        self.line(f"time to first step: {sum(seconds.values()):.1f} s = {parts}")

    def _time_left(self, step: int, now: float) -> str:
        assert self._first_step_at is not None
        done = step - self._first_step
        if not done:
            return "?"
        left = round((now - self._first_step_at) / done * (self._steps - step))
        return (
            f"{left // 3600}:{left // 60 % 60:02d}:{left % 60:02d}"
            if left >= 3600
            else f"{left // 60}:{left % 60:02d}"
        )

    def evaluation(self, result: EvaluationResult) -> None:
        """Print an evaluation's line."""
        scores = "   ".join(
            f"{score.name}: "
            + ", ".join(f"pass@{k} {_show(value)}" for k, value in score.pass_at_k.items())
            for score in result.sets
        )
        self.line(f"held-out after step {result.step}: {scores}   ({result.seconds:.1f} s)")

    def table(self, table: Table) -> None:
        """Print a table."""
        self._rich.print(table)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Take the live line away."""
        if self._live is not None:
            self._live.stop()
            self._live = None


_STEP_COLUMNS = (
    ("reward", "reward", 3),
    ("pass", "pass_rate", 3),
    ("kl", "kl", 4),
    ("entropy", "entropy", 3),
    ("length", "completions/mean_length", 1),
    ("cut", "completions/clipped_ratio", 2),
    ("tokens/s", "tokens_per_second", 0),
    ("busy", "engines/utilisation", 2),
)


def _find_losses(metrics: Mapping[str, float]) -> dict[str, float]:
    """Mean age of the tokens in policy versions, and the share of them that teaches nothing."""
    return {
        "stale": metrics.get("staleness/mean", 0.0),
        "waste": sum(value for name, value in metrics.items() if name.startswith("waste/")),
    }


def _show(estimate: Estimate) -> str:
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def make_time_table(seconds: Mapping[str, float], steps: int) -> Table:
    """Where the wall time of the steps went; the rows add up to the whole.

    Args:
        seconds: Summed over the steps by phase, with the whole as `step`.
        steps: How many.
    """
    table = Table(title=f"Wall time of {steps} steps", title_justify="left")
    table.add_column("phase")
    for column in ("seconds", "per step", "share"):
        table.add_column(column, justify="right")
    whole = seconds["step"]
    rows = {name: value for name, value in seconds.items() if name != "step"}
    rows["loop overhead"] = whole - sum(rows.values())
    for name, value in [*rows.items(), ("whole", whole)]:
        table.add_row(
            name.replace("_", " "), f"{value:.2f}", f"{value / steps:.3f}", f"{value / whole:.1%}"
        )
    return table


def make_waits_table(waits: Mapping[str, Mapping[str, float]]) -> Table:
    """Who waited for whom, as shares of the wall time; each row adds up to all of it.

    Args:
        waits: Seconds by worker, and then by `worked` or what was waited for.
    """
    table = Table(title="Who waited for whom", title_justify="left")
    table.add_column("")
    table.add_column("worked", justify="right")
    for cause in CAUSES:
        table.add_column(f"waited for {cause}", justify="right")
    for worker, row in waits.items():
        whole = sum(row.values())
        cells = [f"{row[key] / whole:.1%}" if whole else "-" for key in (WORKED, *CAUSES)]
        table.add_row(worker, *cells)
    return table


def make_score_table(before: EvaluationResult | None, after: EvaluationResult, seed: int) -> Table:
    """Held-out scores before and after training, with 95 % intervals and the paired difference."""
    table = Table(title="Held-out scores (95 % intervals)", title_justify="left")
    for column in ("set", "problems", "n", "k"):
        table.add_column(column, justify="left" if column == "set" else "right")
    for column in ("before", f"after step {after.step}", "pass@1 change (paired)"):
        table.add_column(column, justify="right")
    old = {score.name: score for score in before.sets} if before else {}
    for score in after.sets:
        for k, value in score.pass_at_k.items():
            table.add_row(*_score_row(score, old.get(score.name), k, value, seed))
    return table


def _score_row(
    score: SetScore, old: SetScore | None, k: int, value: Estimate, seed: int
) -> Sequence[str]:
    before = _show(old.pass_at_k[k]) if old and k in old.pass_at_k else "-"
    change = compare_pass_at_1(old, score, seed=seed) if old and k == 1 else None
    difference = f"{change.value:+.3f} [{change.low:+.3f}, {change.high:+.3f}]" if change else ""
    return (
        score.name,
        str(score.num_problems),
        str(score.num_samples),
        str(k),
        before,
        _show(value),
        difference,
    )
