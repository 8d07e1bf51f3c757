"""What is known of every problem: how often it was tried, how often solved, when last seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from grpo.assemble import group_teaches
from grpo.values import ScoredGroup
from verifiers.verdict import Status

# The file that the ledger is in at a run's end.
FILE = "ledger.json"
# Weight of the newest step in the running share of groups with a signal.
_KEEP_RATE_STEP = 0.3


@dataclass(slots=True, kw_only=True)
class Entry:
    """One problem's record.

    Attributes:
        tries: Completions that were verified.
        solved: Those that were right.
        pass_rate: Share of right ones in its last group: the policy changes, so the newest counts.
        last_seen: Step of that group.
    """

    tries: int = 0
    solved: int = 0
    pass_rate: float = 0.0
    last_seen: int = 0


class PromptLedger:
    """The record of a run's problems; part of its checkpoints.

    Args:
        advantage_estimator: Says which groups teach.
    """

    def __init__(self, advantage_estimator: str) -> None:
        self._estimator = advantage_estimator
        self._entries: dict[str, Entry] = {}
        self.keep_rate = 1.0

    def record(self, step: int, groups: Sequence[ScoredGroup]) -> None:
        """Add a step's groups."""
        for group in groups:
            verified = [m.verdict.status for m in group.members if m.reward is not None]
            if not verified:
                continue
            solved = verified.count(Status.CORRECT)
            entry = self._entries.setdefault(group.problem.id, Entry())
            entry.tries += len(verified)
            entry.solved += solved
            entry.pass_rate = solved / len(verified)
            entry.last_seen = step
        if groups:
            kept = sum(group_teaches(group, self._estimator) for group in groups) / len(groups)
            self.keep_rate += _KEEP_RATE_STEP * (kept - self.keep_rate)

    def find(self, problem_id: str) -> Entry | None:
        """A problem's record; None while it was never verified."""
        return self._entries.get(problem_id)

    def state(self) -> dict[str, Any]:
        """All of it, as JSON."""
        problems = {name: asdict(entry) for name, entry in sorted(self._entries.items())}
        return {"keep_rate": self.keep_rate, "problems": problems}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what `state` gave; an empty one forgets everything."""
        self.keep_rate = state.get("keep_rate", 1.0)
        self._entries = {name: Entry(**entry) for name, entry in state.get("problems", {}).items()}
