"""What one engine has to do for one call of `generate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from grpo.rollout.engine import Placed
from grpo.rollout.handles import EngineHandle
from grpo.values import RolloutRequest


@dataclass(slots=True, kw_only=True)
class Lane:
    """One engine's part of a call.

    Attributes:
        engine: Who does it; None until it has been given something.
        unfinished: Members still to come, by the place of their group in the call.
        taking: Whether a `take` is under way.
        progress: The engine's last sign of life.
        waited_s: Seconds that the driver has waited without a new one.
        spans: What the timeline knows its work on each unfinished group by.
    """

    engine: EngineHandle | None = None
    unfinished: dict[int, set[int]] = field(default_factory=dict)
    taking: bool = False
    progress: int = -1
    waited_s: float = 0.0
    spans: dict[int, int] = field(default_factory=dict)

    def give(self, engine: EngineHandle, group: Placed, *, span: int) -> None:
        """Note that an engine has a group."""
        self.engine = engine
        self.unfinished[group.index] = set(group.members)
        self.spans[group.index] = span

    def finish(self, index: int, member: int) -> int | None:
        """Note that a member has ended; the span of its group, where it was the last."""
        self.unfinished[index].remove(member)
        if self.unfinished[index]:
            return None
        del self.unfinished[index]
        return self.spans.pop(index)

    def owed(self, requests: Sequence[RolloutRequest]) -> list[Placed]:
        """What is still to come, of a call's groups."""
        return [
            Placed(index=index, request=requests[index], members=tuple(sorted(members)))
            for index, members in self.unfinished.items()
        ]
