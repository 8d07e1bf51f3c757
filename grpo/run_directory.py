"""What a run leaves on disk: configuration, metrics, rollouts, evaluations, summary."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import yaml

from grpo.config.schema import RunConfig
from grpo.evaluation.scores import EvaluationResult
from grpo.held_file import hold_file
from grpo.packed import to_json
from grpo.rollout_files import compress, list_files, name_file, read_rows
from grpo.rollout_rows import encode_row, read_groups
from grpo.values import ScoredGroup
from verifiers.errors import UserError

# Enough to see what is going on, and no more than a few MB.
KEPT_TRACES = 50
_CONFIG = "config.yaml"
_HELD = ".held"


class RunDirectory:
    """One run's folder; every file in it is whole, or not there.

    Args:
        path: The folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"

    @classmethod
    def create(cls, output_dir: str, run_name: str) -> RunDirectory:
        """Make a new folder, with a number after its name where an earlier run has taken it."""
        base = Path(output_dir).expanduser()
        number = 1
        while True:
            path = base / (run_name if number == 1 else f"{run_name}-{number}")
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                number += 1
                continue
            except OSError as error:
                raise UserError(
                    f"The run's folder {path} cannot be made: {error}. Set output_dir to a "
                    f"folder of yours."
                ) from None
            return cls(path)

    def hold(self) -> AbstractContextManager[None]:
        """Keep the folder to this process.

        Raises:
            UserError: Another process is at work in it.
        """
        busy = (
            f"Another `verigrad train` is at work in {self.path}. Wait for its end, or stop it, "
            "before --resume; for another run beside it, leave --resume out."
        )
        held = self.path / _HELD
        held.touch()
        return hold_file(held, busy=busy)

    def write_config(self, config: RunConfig) -> None:
        """Write the resolved configuration."""
        self._write(
            _CONFIG,
            yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True),
        )

    def write_json(self, name: str, value: Mapping[str, Any]) -> Path:
        """Write a JSON file."""
        return self._write(
            name, json.dumps(value, indent=2, ensure_ascii=False, default=to_json) + "\n"
        )

    def append_line(self, name: str, row: Mapping[str, Any]) -> None:
        """Add a line to `metrics.jsonl` or the like; where the disk is full, no part of it."""
        line = json.dumps(row).encode() + b"\n"
        with (self.path / name).open("ab", buffering=0) as file:
            whole = file.tell()
            if file.write(line) != len(line):
                file.truncate(whole)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.name)

    def forget_after(self, step: int) -> None:
        """Drop what was kept of steps after the one that training resumes from."""
        for name in ("metrics.jsonl", "warnings.jsonl"):
            if (self.path / name).exists():
                kept = [row for row in self.read_lines(name) if row["step"] <= step]
                self._write(name, "".join(json.dumps(row) + "\n" for row in kept))
        for folder in ("rollouts", "evaluations", "traces"):
            for unfinished in (self.path / folder).glob(".step-*.partial"):
                unfinished.unlink()
            for late in (self.path / folder).glob("step-*"):
                if int(late.name.removeprefix("step-")[:6]) > step:
                    late.unlink()

    def read_lines(self, name: str) -> list[dict[str, Any]]:
        """The rows of `metrics.jsonl` or `warnings.jsonl`; none where there is no such file.

        A line that a killed run has left half written is passed over.
        """
        file = self.path / name
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return [row for row in map(_read_line, lines) if row is not None]

    def write_rollouts(
        self,
        step: int,
        groups: Sequence[ScoredGroup],
        folder: str = "rollouts",
        *,
        compressed: bool = False,
    ) -> None:
        """Write every rollout of a step with what was found out about it."""
        rows = (encode_row(step, group, i) for group in groups for i in range(len(group.members)))
        name = name_file(step, compressed=compressed)
        self._write(f"{folder}/{name}", compress(rows) if compressed else rows)

    def prune_rollouts(self, keep: int) -> None:
        """Remove the rollouts of all training steps but the newest."""
        for old in list(list_files(self.path / "rollouts").values())[:-keep]:
            old.unlink()

    def write_trace(self, step: int, trace: Mapping[str, Any]) -> None:
        """Write a step's timeline, and remove the oldest."""
        folder = self.path / "traces"
        self._write(f"traces/step-{step:06d}.json", json.dumps(trace))
        for old in sorted(folder.glob("step-*.json"))[:-KEPT_TRACES]:
            old.unlink()

    def read_rollouts(self, step: int) -> list[ScoredGroup]:
        """The groups of a training step, in its order.

        Raises:
            UserError: They are not there.
        """
        folder = self.path / "rollouts"
        file = list_files(folder).get(step)
        if file is None:
            raise UserError(
                f"{folder} has no rollouts of step {step}. A run keeps those of its last "
                "keep_rollouts steps, by default of all."
            )
        return read_groups(list(read_rows(file)), source=str(file))

    def write_evaluation(
        self,
        result: EvaluationResult,
        groups: Sequence[ScoredGroup],
        folder: str = "evaluations",
        *,
        compressed: bool = False,
    ) -> Path:
        """Write an evaluation's scores, and its rollouts beside them."""
        self.write_rollouts(result.step, groups, folder=folder, compressed=compressed)
        return self._write(
            f"{folder}/step-{result.step:06d}.json", result.model_dump_json(indent=2) + "\n"
        )

    def read_evaluation(self, step: int) -> EvaluationResult | None:
        """The evaluation of a step, if there is one."""
        file = self.path / "evaluations" / f"step-{step:06d}.json"
        return (
            EvaluationResult.model_validate_json(file.read_text(encoding="utf-8"))
            if file.exists()
            else None
        )

    def read_first_evaluation(self) -> EvaluationResult | None:
        """The evaluation that later ones are compared with, if there is one."""
        return next(self._read_evaluations(), None)

    def find_best(self, metric: str, step: int) -> float | None:
        """The highest value of a metric in the evaluations up to a step, if there is one."""
        values = [r.metrics.get(metric) for r in self._read_evaluations() if r.step <= step]
        return max((value for value in values if value is not None), default=None)

    def _read_evaluations(self) -> Iterator[EvaluationResult]:
        for file in sorted(self.path.glob("evaluations/step-*.json")):
            yield EvaluationResult.model_validate_json(file.read_text(encoding="utf-8"))

    def _write(self, name: str, content: str | Iterable[bytes]) -> Path:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_name(f".{file.name}.partial")
        with partial.open("wb") as stream:
            stream.writelines([content.encode()] if isinstance(content, str) else content)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(file)
        return file


def _read_line(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except json.JSONDecodeError:
        return None
    return row if isinstance(row, dict) else None
