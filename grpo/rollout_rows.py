"""A judged rollout as a row of JSON, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from grpo.packed import Spans, find_spans, pack_logprobs, pack_token_ids
from grpo.values import Rollout, ScoredGroup, ScoredRollout
from verifiers.problem import Problem
from verifiers.verdict import Reason, Status, Verdict

_MAX_REFERENCE_CHARS = 20_000


def encode_row(step: int, group: ScoredGroup, index: int) -> bytes:
    """One member of a group as a line of JSON, with its problem's prompt and reference."""
    row = describe_member(step, group, index)
    rollout = group.members[index].rollout
    tokens = {
        "prompt_ids": msgspec.json.encode(list(rollout.prompt_ids)),
        "completion_ids": msgspec.json.encode(list(rollout.completion_ids)),
        "logprobs": encode_logprobs(rollout.logprobs),
        "policy_versions": msgspec.json.encode(list(rollout.policy_versions)),
    }
    # The numbers of every token are most of a line, and json takes ten times as long for them.
    rest = b"".join(b', "%s": %s' % (name.encode(), text) for name, text in tokens.items())
    return json.dumps(row, ensure_ascii=False).encode()[:-1] + rest + b"}\n"


def encode_logprobs(logprobs: Sequence[float]) -> bytes:
    """Log-probabilities as JSON, in nine digits: as many as a float of 32 bits can need."""
    exact = np.asarray(logprobs, dtype=np.float64)
    if not np.isfinite(exact).all():
        return json.dumps(exact.tolist()).encode()
    # Where this comes out as another number, or as none, the number is written in full.
    with np.errstate(all="ignore"):
        scale = 10.0 ** (8 - np.floor(np.log10(np.abs(exact))))
        short = np.rint(exact * scale) / scale
        same = short.astype(np.float32) == exact
    return msgspec.json.encode(np.where(same, short, exact).tolist())


def describe_member(step: int, group: ScoredGroup, index: int) -> dict[str, Any]:
    """One member of a group as a row, but for the numbers of its tokens."""
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
        "seed": rollout.seed,
    }


def read_member(row: Mapping[str, Any]) -> ScoredRollout:
    """A sample as `encode_row` wrote it."""
    rollout = Rollout(
        problem_id=row["problem_id"],
        member=row["member"],
        prompt_ids=pack_token_ids(row["prompt_ids"]),
        completion_ids=pack_token_ids(row["completion_ids"]),
        logprobs=pack_logprobs(row["logprobs"]),
        text=row["text"],
        finish_reason=row["finish_reason"],
        policy_versions=Spans(find_spans(row["policy_versions"])),
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
        rows: As `encode_row` writes them, one group after the other.
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
