"""Keeps what a run produces: on disk, with the trackers and on the console."""

from __future__ import annotations

import errno
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from grpo.background import BackgroundJobs
from grpo.console import Console, make_score_table, make_time_table, make_waits_table
from grpo.evaluation.comparison import compare_sets, describe_flips, zip_sets
from grpo.evaluation.plots import write_plots
from grpo.evaluation.scores import EvaluationResult, compare_pass_at_1
from grpo.incidents import IncidentLog, describe_not_verified, make_incident_table
from grpo.metrics import NOT_VERIFIED
from grpo.run_directory import RunDirectory
from grpo.symptoms import Symptom, SymptomWatch
from grpo.timing import Laps, StepTimes
from grpo.trace import make_chrome_trace
from grpo.trackers import CompletionTracker, Tracker
from grpo.values import ScoredGroup, StepReport
from grpo.waits import WORKERS, advise
from verifiers.incident import Incident

DROPPED = "dropped/"
SKIPPED = "skipped"
# Steps whose rollouts may wait in memory for the disk.
_MOST_WRITING = 2
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class RunRecorder:
    """Writes rollouts, metrics and evaluations, and sums a run up.

    Args:
        directory: Where they are kept.
        console: Where they are shown.
        seed: The run's seed, for the intervals' resampling.
        trackers: Where metrics go as well; the caller closes them.
        laps: The parts of the start so far; the first evaluation and the first step are added.
        incidents: Told of what could not be kept, and shown at the end.
        keep_rollouts: Training steps whose rollouts stay on disk; None keeps all.
        compress_rollouts: Whether files of rollouts are compressed.
    """

    def __init__(
        self,
        *,
        directory: RunDirectory,
        console: Console,
        seed: int,
        trackers: Sequence[Tracker],
        laps: Laps,
        incidents: IncidentLog,
        keep_rollouts: int | None = None,
        compress_rollouts: bool = False,
    ) -> None:
        self._laps = laps
        self._directory = directory
        self._console = console
        self._seed = seed
        self._trackers = list(trackers)
        self._incidents = incidents
        self._num_kept = keep_rollouts
        self._compressed = compress_rollouts
        self._writing = BackgroundJobs(self._unless_full, most=_MOST_WRITING)
        self._steps = 0
        self._evaluations: list[EvaluationResult] = []
        self._watch = SymptomWatch()
        self._groups: Sequence[ScoredGroup] = ()
        self._warnings: list[Symptom] = []

    def keep_rollouts(self, step: int, groups: Sequence[ScoredGroup]) -> None:
        """Begin to write a step's rollouts with their verdicts; training goes on meanwhile."""

        def write() -> None:
            self._directory.write_rollouts(step, groups, compressed=self._compressed)
            if self._num_kept is not None:
                self._directory.prune_rollouts(self._num_kept)

        self._writing.submit(f"rollouts of step {step}", write)
        self._groups = groups

    def settle(self) -> None:
        """Wait until everything is written, or known to have failed."""
        self._writing.settle()

    def keep_step(self, report: StepReport) -> None:
        """Write and show a step's metrics."""
        row = {
            "step": report.step,
            "policy_version": report.policy_version,
            "time": time.time(),
            **report.metrics,
            **{f"{DROPPED}{name}": count for name, count in report.dropped.items()},
            **({SKIPPED: report.skipped} if report.skipped else {}),
            **({"remark": report.remark} if report.remark else {}),
        }
        with self._unless_full(f"metrics of step {report.step}"):
            self._directory.append_line("metrics.jsonl", row)
        self._steps += 1
        self._track(report.step, report.metrics)
        for tracker in self._trackers:
            if isinstance(tracker, CompletionTracker):
                tracker.log_completions(report.step, self._groups)
        self._console.step(report)
        if self._steps == 1:
            self._laps.lap("first step")
            self._console.first_step(self._laps.seconds)
        for symptom in self._watch.look(report.step, report.metrics, self._groups):
            self._keep_warning(symptom)

    def keep_breach(self, step: int, text: str) -> None:
        """Write and show a broken invariant that did not stop the run."""
        self._keep_warning(Symptom(name="invariant", step=step, text=text))

    def keep_trace(self, step: int, times: StepTimes) -> None:
        """Write a step's timeline."""
        with self._unless_full(f"trace of step {step}"):
            self._directory.write_trace(step, make_chrome_trace(times, step=step))

    def keep_evaluation(self, result: EvaluationResult, groups: Sequence[ScoredGroup]) -> None:
        """Begin to write an evaluation, and show it."""
        self._writing.submit(
            f"evaluation of step {result.step}",
            lambda: self._directory.write_evaluation(result, groups, compressed=self._compressed),
        )
        self._evaluations.append(result)
        self._track(result.step, result.metrics)
        if not self._steps:
            self._laps.lap("evaluation")
        self._console.evaluation(result)

    def _keep_warning(self, symptom: Symptom) -> None:
        self._warnings.append(symptom)
        with self._unless_full(f"warnings of step {symptom.step}"):
            self._directory.append_line("warnings.jsonl", asdict(symptom))
        self._console.symptom(symptom)

    def _compare(self, before: EvaluationResult, after: EvaluationResult) -> None:
        """Write what training changed, problem by problem, and say it in a line for each set."""
        pairs = zip_sets(before, after)
        found = [compare_sets(first, second, seed=self._seed) for first, second in pairs]
        comparisons = [comparison for comparison in found if comparison is not None]
        with self._unless_full("comparison of before and after"):
            sets = [comparison.model_dump() for comparison in comparisons]
            self._directory.write_json("evaluations/comparison.json", {"sets": sets})
            curves = {"before": before, f"after step {after.step}": after}
            write_plots(curves, self._directory.path / "evaluations", self._seed)
        for comparison in comparisons:
            for line in describe_flips(comparison):
                self._console.line(line)

    def close(self, *, complete: bool) -> dict[str, Any]:
        """Write `summary.json`, show the closing tables, and return the summary.

        Args:
            complete: Whether all steps were made.
        """
        self.settle()
        before = self._directory.read_first_evaluation()
        after = self._evaluations[-1] if self._evaluations else None
        # Read back, so that steps which were made twice, and those before a resume, count once.
        rows = self._directory.read_lines("metrics.jsonl")
        seconds = sum_by_prefix(rows, "time/")
        seconds.pop("loop_overhead", None)
        waits = sum_waits(rows)
        not_verified = {k: int(v) for k, v in sum_by_prefix(rows, NOT_VERIFIED).items()}
        summary = {
            "complete": complete,
            "directory": str(self._directory.path),
            "steps": len(rows),
            "wall_seconds": time.perf_counter() - self._laps.begun,
            "seconds_to_first_step": self._laps.seconds,
            "step_seconds": seconds,
            "waits": waits,
            "dropped": {k: int(v) for k, v in sum_by_prefix(rows, DROPPED).items()},
            "steps_without_update": dict(Counter(r[SKIPPED] for r in rows if SKIPPED in r)),
            "last_metrics": rows[-1] if rows else {},
            "not_verified": not_verified,
            "incidents": [asdict(incident) for incident in self._incidents.incidents],
            "warnings": [asdict(symptom) for symptom in self._warnings],
            "held_out": self._summarise_scores(before, after) if after else {},
        }
        self._directory.write_json("summary.json", summary)
        if before and after and after.step > before.step:
            self._compare(before, after)
        if rows:
            self._console.table(make_time_table(seconds, len(rows)))
        if any(waits.values()):
            self._console.table(make_waits_table(waits))
            self._console.line(advise(waits))
        if self._incidents.incidents:
            self._console.table(make_incident_table(self._incidents.incidents))
        if not_verified:
            self._console.line(describe_not_verified(not_verified))
        if after:
            self._console.table(make_score_table(before if after.step else None, after, self._seed))
        return summary

    def _track(self, step: int, values: Mapping[str, float]) -> None:
        for tracker in tuple(self._trackers):
            try:
                tracker.log(step, values)
            except OSError as error:
                # The writers of events do not come back from an error.
                self._trackers.remove(tracker)
                self._note_loss(f"what {type(tracker).__name__} takes from here on", error)

    @contextmanager
    def _unless_full(self, what: str) -> Iterator[None]:
        """Go on without a record where the disk is full; training is worth more than its log."""
        try:
            yield
        except OSError as error:
            if error.errno not in _FULL:
                raise
            self._note_loss(what, error)

    def _note_loss(self, what: str, error: OSError) -> None:
        self._incidents.note(
            Incident(stage="record", worker=what, cause=str(error), action="not kept", num_lost=1)
        )

    def _summarise_scores(
        self, before: EvaluationResult | None, after: EvaluationResult
    ) -> dict[str, Any]:
        old = {score.name: score for score in before.sets} if before else {}
        summary = {}
        for score in after.sets:
            first = old.get(score.name)
            change = compare_pass_at_1(first, score, seed=self._seed) if first else None
            summary[score.name] = {
                "num_problems": score.num_problems,
                "num_samples": score.num_samples,
                "before": _dump(first.pass_at_k) if first else None,
                "after": _dump(score.pass_at_k),
                "pass@1_change": change.model_dump() if change else None,
            }
        return summary


def sum_by_prefix(rows: Sequence[Mapping[str, Any]], prefix: str) -> dict[str, float]:
    """Sum the metrics whose names begin with a prefix over all steps, by the rest of the name."""
    sums: defaultdict[str, float] = defaultdict(float)
    for row in rows:
        for name, value in row.items():
            if name.startswith(prefix):
                sums[name.removeprefix(prefix)] += value
    return dict(sums)


def sum_waits(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Who waited for whom over all steps, in seconds."""
    return {worker: sum_by_prefix(rows, f"waits/{worker}/") for worker in WORKERS}


def _dump(pass_at_k: Any) -> dict[str, Any]:
    return {f"pass@{k}": estimate.model_dump() for k, estimate in pass_at_k.items()}
