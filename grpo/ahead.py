"""Groups that were gathered ahead of the loop, as a checkpoint keeps them, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grpo.gather import Gathered
from grpo.rollout_rows import read_groups, rollout_row


def keep_gathered(gathered: Gathered) -> dict[str, Any]:
    """A step's groups as JSON; see `grpo.rollout_rows` for what is kept of a problem."""
    return {
        "step": gathered.step,
        "surplus": gathered.surplus,
        "num_drawn": gathered.num_drawn,
        "remark": gathered.remark,
        "rows": [
            rollout_row(gathered.step, group, index)
            for group in gathered.groups
            for index in range(len(group.members))
        ],
    }


def read_gathered(state: Mapping[str, Any]) -> Gathered:
    """A step's groups as `keep_gathered` left them."""
    return Gathered(
        step=state["step"],
        groups=tuple(read_groups(state["rows"], source="a checkpoint")),
        surplus=state["surplus"],
        num_drawn=state["num_drawn"],
        remark=state["remark"],
    )
