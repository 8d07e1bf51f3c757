"""What the page shows of a run, read from its folder, which may still be written to."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any, Literal

from grpo.rollout_files import list_files, read_rows
from grpo.run_directory import RunDirectory
from verifiers.errors import UserError

Kind = Literal["rollouts", "evaluations"]
# Token arrays are what makes a step's file large, and no person reads them.
_ARRAYS = ("prompt_ids", "completion_ids", "logprobs", "policy_versions")


class RunReader:
    """Reads one run.

    Args:
        path: The run's folder.

    Raises:
        UserError: It is not one.
    """

    def __init__(self, path: Path) -> None:
        if not (path / "config.yaml").is_file():
            raise UserError(
                f"{path} is not a run's folder: it has no config.yaml. Runs are in the folder that "
                "output_dir names, by default runs/."
            )
        self._path = path
        self._directory = RunDirectory(path)
        self.name = path.resolve().name

    def read_overview(self) -> dict[str, Any]:
        """Name, configuration, warnings, summary, and the steps there are rollouts of."""
        return {
            "name": self.name,
            "config": (self._path / "config.yaml").read_text(encoding="utf-8"),
            "warnings": self._directory.read_lines("warnings.jsonl"),
            "summary": self._read_json("summary.json"),
            "rollouts": self._list_steps("rollouts"),
            "evaluations": self._list_steps("evaluations"),
        }

    def read_metrics(self) -> list[dict[str, Any]]:
        """A row for each step, and `heldout/...` scores in rows of their own.

        A number that is not finite becomes None: JSON knows no other.
        """
        rows = self._directory.read_lines("metrics.jsonl")
        rows += [self._read_scores(step) for step in self._list_steps("evaluations")]
        return [{name: _as_json(value) for name, value in row.items()} for row in rows]

    def read_rollouts(self, kind: Kind, step: int) -> list[dict[str, Any]]:
        """The completions of a step in the order of their problems, without token arrays.

        Raises:
            FileNotFoundError: There are none of that step.
        """
        file = list_files(self._path / kind).get(step)
        if file is None:
            raise FileNotFoundError(f"no {kind} of step {step}")
        return [_shorten(row) for row in read_rows(file)]

    def _list_steps(self, kind: Kind) -> list[int]:
        return list(list_files(self._path / kind))

    def _read_scores(self, step: int) -> dict[str, Any]:
        result = self._directory.read_evaluation(step)
        assert result is not None, step
        return {"step": step} | result.metrics

    def _read_json(self, name: str) -> dict[str, Any] | None:
        file = self._path / name
        return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def _shorten(row: dict[str, Any]) -> dict[str, Any]:
    short = {name: value for name, value in row.items() if name not in _ARRAYS}
    logprobs = row["logprobs"]
    return short | {
        "num_tokens": len(row["completion_ids"]),
        "mean_logprob": statistics.fmean(logprobs) if logprobs else None,
    }


def _as_json(value: float | str) -> float | str | None:
    return value if isinstance(value, str) or math.isfinite(value) else None
