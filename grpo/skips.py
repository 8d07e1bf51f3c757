"""What is done with a batch that no finite update comes of: kept on disk, and not too often."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from grpo.errors import RunFailed
from grpo.values import Batch


class SkipGuard:
    """Writes such batches down, and ends a run that meets too many in a row.

    Args:
        write: Writes a JSON file of the run's folder, and says where it is.
        max_in_a_row: The run fails with so many.
    """

    def __init__(
        self, write: Callable[[str, Mapping[str, Any]], Path], *, max_in_a_row: int
    ) -> None:
        self._write = write
        self._max_in_a_row = max_in_a_row
        self._in_a_row = 0

    def note(self, batch: Batch, non_finite: str | None) -> None:
        """Take note of an update.

        Args:
            batch: What was learned from.
            non_finite: What was not finite; None when all was.

        Raises:
            RunFailed: It was the last of too many.
        """
        if non_finite is None:
            self._in_a_row = 0
            return
        self._in_a_row += 1
        file = self._write(
            f"skipped/step-{batch.step:06d}.json", {"reason": non_finite} | asdict(batch)
        )
        if self._in_a_row >= self._max_in_a_row:
            raise RunFailed(
                f"The last {self._in_a_row} steps in a row (max_non_finite_steps) gave no finite "
                f"update: {non_finite} in step {batch.step}, whose batch is in {file}. The weights "
                "are as before the first of them. A lower learning_rate or max_grad_norm, or "
                "rollout.dtype=float32, is what usually helps."
            )

    def state(self) -> Mapping[str, Any]:
        """What a checkpoint keeps."""
        return {"in_a_row": self._in_a_row}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._in_a_row = state["in_a_row"]
