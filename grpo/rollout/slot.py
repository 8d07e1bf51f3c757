"""One place of a pool, and the engine that fills it now."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Literal

from grpo.restarts import RestartBudget
from grpo.rollout.handles import EngineHandle
from grpo.values import WeightPush
from verifiers.vitals import Vitals

# `up` is an engine that waits for weights; `serving` has the pool's policy; `retired` is given up.
State = Literal["starting", "up", "serving", "retired"]


@dataclass(slots=True)
class Slot:
    """A place of a pool.

    Attributes:
        handle: Of the engine.
        budget: Restarts that are left.
        state: Of the engine.
        push: Its answer to the last push.
        vitals: Its last signs of life.
        error: What the last failure was.
        failed: The engine that is being replaced, or was given up.
        doubted: Whether it did not answer when it was last asked.
        reviver: Waits for a new engine.
    """

    handle: EngineHandle
    budget: RestartBudget
    state: State = "starting"
    push: WeightPush | None = None
    vitals: Vitals | None = None
    error: Exception | None = None
    failed: EngineHandle | None = None
    doubted: bool = False
    reviver: threading.Thread | None = field(default=None, repr=False)

    @property
    def starts(self) -> bool:
        """Whether an engine is on its way; one that failed may not be replaced yet."""
        return self.state == "starting" and self.failed is not self.handle
