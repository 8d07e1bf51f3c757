"""Groups that were gathered ahead of the loop, as a checkpoint keeps them, and back."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

import numpy as np

from grpo.gather import Gathered
from grpo.packed import Spans, find_spans
from grpo.rollout_rows import describe_member, read_groups
from grpo.values import Rollout

_TOKEN_IDS = np.dtype("<i4")
_LOGPROBS = np.dtype("<f4")


def keep_gathered(gathered: Gathered) -> dict[str, Any]:
    """A step's groups as JSON; see `grpo.rollout_rows` for what is kept of a problem."""
    return {
        "step": gathered.step,
        "surplus": gathered.surplus,
        "num_drawn": gathered.num_drawn,
        "remark": gathered.remark,
        "rows": [
            describe_member(gathered.step, group, index)
            | _keep_tokens(group.members[index].rollout)
            for group in gathered.groups
            for index in range(len(group.members))
        ],
    }


def read_gathered(state: Mapping[str, Any]) -> Gathered:
    """A step's groups as `keep_gathered` left them."""
    rows = [row | _read_tokens(row) for row in state["rows"]]
    return Gathered(
        step=state["step"],
        groups=tuple(read_groups(rows, source="a checkpoint")),
        surplus=state["surplus"],
        num_drawn=state["num_drawn"],
        remark=state["remark"],
    )


def _keep_tokens(rollout: Rollout) -> dict[str, Any]:
    return {
        "prompt_ids": _to_text(rollout.prompt_ids, _TOKEN_IDS),
        "completion_ids": _to_text(rollout.completion_ids, _TOKEN_IDS),
        "logprobs": _to_text(rollout.logprobs, _LOGPROBS),
        "policy_version_spans": find_spans(rollout.policy_versions),
    }


def _read_tokens(row: Mapping[str, Any]) -> dict[str, Any]:
    if "policy_version_spans" not in row:
        return {}  # written before tokens were packed
    return {
        "prompt_ids": _from_text(row["prompt_ids"], _TOKEN_IDS),
        "completion_ids": _from_text(row["completion_ids"], _TOKEN_IDS),
        "logprobs": _from_text(row["logprobs"], _LOGPROBS),
        "policy_versions": Spans((v, n) for v, n in row["policy_version_spans"]),
    }


def _to_text(numbers: Any, dtype: np.dtype[Any]) -> str:
    return b64encode(np.asarray(numbers, dtype=dtype).tobytes()).decode()


def _from_text(text: str, dtype: np.dtype[Any]) -> np.ndarray:
    return np.frombuffer(b64decode(text), dtype=dtype)
