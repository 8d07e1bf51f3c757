"""Ends a run in which nothing is verified any more."""

from __future__ import annotations

from collections import Counter

from grpo.errors import RunFailed
from grpo.metrics import NOT_VERIFIED, SHARE_RIGHT
from grpo.values import StepReport


class UnverifiedGuard:
    """Counts the steps in a row of which no completion was verified.

    Args:
        max_in_a_row: The run fails with so many.
    """

    def __init__(self, *, max_in_a_row: int) -> None:
        self._max_in_a_row = max_in_a_row
        self._in_a_row = 0
        self._reasons: Counter[str] = Counter()

    def note(self, report: StepReport) -> None:
        """Take note of a step, whose rollouts are kept.

        Raises:
            RunFailed: It was the last of too many.
        """
        if SHARE_RIGHT in report.metrics:  # there is a rate only of what was verified
            self._in_a_row = 0
            self._reasons.clear()
            return
        self._in_a_row += 1
        for name, count in report.metrics.items():
            if name.startswith(NOT_VERIFIED):
                self._reasons[name.removeprefix(NOT_VERIFIED)] += int(count)
        if self._in_a_row >= self._max_in_a_row:
            reasons = ", ".join(f"{name} {count}" for name, count in self._reasons.most_common())
            raise RunFailed(
                f"No completion of the last {self._in_a_row} steps (max_unverified_steps) was "
                f"verified: {reasons}. Each one's reason and detail are in the run's "
                f"rollouts/step-{report.step:06d}.jsonl (.gz with compress_rollouts); "
                "`verigrad view` shows them. Nothing was learned from these steps; `verigrad "
                "verify` tries a verifier without a model."
            )
