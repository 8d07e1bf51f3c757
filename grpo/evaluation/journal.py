"""Judged groups on disk, written as they are done: what a second try goes on from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from grpo.rollout_rows import encode_row, read_member
from grpo.values import ScoredGroup, ScoredRollout
from verifiers.problem import Problem

SAMPLES = "samples.jsonl"


class Journal:
    """The file `samples.jsonl` of an evaluation's folder, one sample a line.

    Args:
        folder: Of the evaluation.
    """

    def __init__(self, folder: Path) -> None:
        self.file = folder / SAMPLES

    def append(self, group: ScoredGroup) -> None:
        """Add a group's samples."""
        rows = [encode_row(0, group, index) for index in range(len(group.members))]
        with self.file.open("ab") as stream:
            stream.write(b"".join(rows))
            stream.flush()

    def load(self, problems: Mapping[str, Problem], num_samples: int) -> dict[str, ScoredGroup]:
        """The groups that are whole, by problem id.

        Groups with a member missing, as a killed process leaves the last one, are taken out of the
        file; so are those with a sample that was not verified, to be tried once more.
        """
        if not self.file.exists():
            return {}
        members: dict[str, dict[int, ScoredRollout]] = {}
        lines: dict[str, list[str]] = {}
        for line in self.file.read_text(encoding="utf-8").split("\n"):
            row = _parse(line)
            if row is not None and row["problem_id"] in problems:
                name = row["problem_id"]
                members.setdefault(name, {})[row["member"]] = read_member(row)
                lines.setdefault(name, []).append(line)
        groups = {
            name: ScoredGroup(
                problem=problems[name], members=tuple(found[m] for m in range(num_samples))
            )
            for name, found in members.items()
            if set(found) == set(range(num_samples))
            and all(member.verdict.verified for member in found.values())
        }
        self._rewrite(line for name in groups for line in lines[name])
        return groups

    def _rewrite(self, lines: Iterable[str]) -> None:
        partial = self.file.with_name(f".{self.file.name}.partial")
        partial.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        partial.replace(self.file)


def _parse(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except json.JSONDecodeError:
        return None  # the line that was being written when the process ended, or the file's end
    return row if isinstance(row, dict) else None
