"""A judged rollout as a row of JSON, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from grpo.values import Rollout, ScoredGroup, ScoredRollout
from verifiers.problem import Problem
from verifiers.verdict import Reason, Status, Verdict

_MAX_REFERENCE_CHARS = 20_000


def rollout_row(step: int, group: ScoredGroup, index: int) -> dict[str, Any]:
    """One member of a group as a row, with its problem's prompt and reference."""
    member = group.members[index]
    rollout, verdict, prompt = member.rollout, member.verdict, group.problem.prompt
    return {
        "step": step,
        "problem_id": group.problem.id,
        "member": rollout.member,
        "reward": member.reward,
        "reward_parts": member.reward_parts,
        "score": verdict.score,
        "status": verdict.status,
        "reason": verdict.reason,
        "extracted": verdict.extracted,
        "verifier": verdict.verifier,
        "detail": verdict.detail,
        "report": verdict.report,
        "verify_s": round(verdict.seconds, 6),
        "finish_reason": rollout.finish_reason,
        "prompt": prompt if isinstance(prompt, str) else [dict(message) for message in prompt],
        "text": rollout.text,
        "reference": _brief(_as_json(group.problem.reference)),
        "prompt_ids": rollout.prompt_ids,
        "completion_ids": rollout.completion_ids,
        "logprobs": rollout.logprobs,
        "policy_versions": rollout.policy_versions,
        "seed": rollout.seed,
    }


def read_member(row: Mapping[str, Any]) -> ScoredRollout:
    """A sample as `rollout_row` wrote it."""
    rollout = Rollout(
        problem_id=row["problem_id"],
        member=row["member"],
        prompt_ids=tuple(row["prompt_ids"]),
        completion_ids=tuple(row["completion_ids"]),
        logprobs=tuple(row["logprobs"]),
        text=row["text"],
        finish_reason=row["finish_reason"],
        policy_versions=tuple(row["policy_versions"]),
        seed=row["seed"],
    )
    verdict = Verdict(
        status=Status(row["status"]),
        score=row["score"],
        reason=Reason(row["reason"]),
        verifier=row["verifier"],
        extracted=row["extracted"],
        seconds=row["verify_s"],
        detail=row["detail"],
        report=row["report"],
    )
    return ScoredRollout(
        rollout=rollout,
        verdict=verdict,
        reward=row["reward"],
        reward_parts=tuple((weight, value) for weight, value in row["reward_parts"]),
    )


def read_groups(rows: Sequence[Mapping[str, Any]], *, source: str) -> list[ScoredGroup]:
    """The groups that rows were made from, in their order.

    A problem's columns are not in the rows, and its reference is there as JSON.

    Args:
        rows: As `rollout_to_row` makes them, one group after the other.
        source: Where they are, for messages.
    """
    groups: list[list[Mapping[str, Any]]] = []
    for row in rows:
        last = groups[-1][-1] if groups else None
        # A problem may be drawn twice in a row; members are numbered from 0 in each group.
        if (
            last is None
            or last["problem_id"] != row["problem_id"]
            or last["member"] >= row["member"]
        ):
            groups.append([])
        groups[-1].append(row)
    return [
        ScoredGroup(
            problem=_read_problem(members[0], source),
            members=tuple(read_member(row) for row in members),
        )
        for members in groups
    ]


def _read_problem(row: Mapping[str, Any], source: str) -> Problem:
    prompt = row["prompt"]
    return Problem(
        id=row["problem_id"],
        prompt=prompt if isinstance(prompt, str) else tuple(prompt),
        verifier=row["verifier"].split("@")[0],
        reference=row["reference"],
        source=source,
    )


def _brief(value: Any) -> Any:
    """The reference, or the beginning of its JSON: tests of a program may be megabytes of it."""
    if not isinstance(value, list | dict):
        return value
    text = json.dumps(value, default=str)
    return value if len(text) <= _MAX_REFERENCE_CHARS else f"{text[:_MAX_REFERENCE_CHARS]}..."


def _as_json(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None | list | dict) else str(value)
