"""Keeps what a run produces: on disk, with the trackers and on the console."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from grpo.console import Console, make_score_table, make_time_table
from grpo.evaluation.scores import EvaluationResult, compare_pass_at_1
from grpo.run_directory import RunDirectory
from grpo.symptoms import Symptom, SymptomWatch
from grpo.timing import Laps
from grpo.trackers import Tracker
from grpo.values import ScoredGroup, StepReport


class RunRecorder:
    """Writes rollouts, metrics and evaluations, and sums a run up.

    Args:
        directory: Where they are kept.
        console: Where they are shown.
        seed: The run's seed, for the intervals' resampling.
        trackers: Where metrics go as well; the caller closes them.
        laps: The parts of the start so far; the first evaluation and the first step are added.
    """

    def __init__(
        self,
        *,
        directory: RunDirectory,
        console: Console,
        seed: int,
        trackers: Sequence[Tracker],
        laps: Laps,
    ) -> None:
        self._laps = laps
        self._directory = directory
        self._console = console
        self._seed = seed
        self._trackers = trackers
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._dropped: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()
        self._steps = 0
        self._last_metrics: dict[str, float] = {}
        self._evaluations: list[EvaluationResult] = []
        self._watch = SymptomWatch()
        self._groups: Sequence[ScoredGroup] = ()
        self._warnings: list[Symptom] = []

    def keep_rollouts(self, step: int, groups: Sequence[ScoredGroup]) -> None:
        """Write a step's rollouts with their verdicts."""
        self._directory.write_rollouts(step, groups)
        self._groups = groups

    def keep_step(self, report: StepReport) -> None:
        """Write and show a step's metrics."""
        row = {
            "step": report.step,
            "policy_version": report.policy_version,
            "time": time.time(),
            **report.metrics,
        }
        self._directory.append_line(
            "metrics.jsonl",
            row | {f"dropped/{name}": count for name, count in report.dropped.items()},
        )
        self._steps += 1
        self._last_metrics = dict(report.metrics)
        self._dropped.update(report.dropped)
        self._skipped.update([report.skipped] if report.skipped else [])
        prefix = "time/"
        for name, value in report.metrics.items():
            if name.startswith(prefix) and name != "time/loop_overhead":
                self._seconds[name.removeprefix(prefix)] += value
        for tracker in self._trackers:
            tracker.log(report.step, report.metrics)
        self._console.step(report)
        if self._steps == 1:
            self._laps.lap("first step")
            self._console.first_step(self._laps.seconds)
        for symptom in self._watch.look(report.step, report.metrics, self._groups):
            self._warnings.append(symptom)
            self._directory.append_line("warnings.jsonl", asdict(symptom))
            self._console.symptom(symptom)

    def keep_evaluation(self, result: EvaluationResult, groups: Sequence[ScoredGroup]) -> None:
        """Write and show an evaluation."""
        self._directory.write_evaluation(result, groups)
        self._evaluations.append(result)
        scores = {
            f"heldout/{score.name}/pass@{k}": estimate.value
            for score in result.sets
            for k, estimate in score.pass_at_k.items()
        }
        for tracker in self._trackers:
            tracker.log(result.step, scores)
        if not self._steps:
            self._laps.lap("evaluation")
        self._console.evaluation(result)

    def close(self, *, complete: bool) -> dict[str, Any]:
        """Write `summary.json`, show the closing tables, and return the summary.

        Args:
            complete: Whether all steps were made.
        """
        before = self._directory.read_evaluation(0)
        after = self._evaluations[-1] if self._evaluations else None
        summary = {
            "complete": complete,
            "directory": str(self._directory.path),
            "steps": self._steps,
            "wall_seconds": time.perf_counter() - self._laps.begun,
            "seconds_to_first_step": self._laps.seconds,
            "step_seconds": {**self._seconds},
            "dropped": dict(self._dropped),
            "steps_without_update": dict(self._skipped),
            "last_metrics": self._last_metrics,
            "warnings": [asdict(symptom) for symptom in self._warnings],
            "held_out": self._summarise_scores(before, after) if after else {},
        }
        self._directory.write_json("summary.json", summary)
        if self._steps:
            self._console.table(make_time_table(self._seconds, self._steps))
        if after:
            self._console.table(make_score_table(before if after.step else None, after, self._seed))
        return summary

    def _summarise_scores(
        self, before: EvaluationResult | None, after: EvaluationResult
    ) -> dict[str, Any]:
        old = {score.name: score for score in before.sets} if before else {}
        return {
            score.name: {
                "num_problems": score.num_problems,
                "num_samples": score.num_samples,
                "before": _dump(old[score.name].pass_at_k) if score.name in old else None,
                "after": _dump(score.pass_at_k),
                "pass@1_change": compare_pass_at_1(
                    old[score.name], score, seed=self._seed
                ).model_dump()
                if score.name in old
                else None,
            }
            for score in after.sets
        }


def _dump(pass_at_k: Any) -> dict[str, Any]:
    return {f"pass@{k}": estimate.model_dump() for k, estimate in pass_at_k.items()}
