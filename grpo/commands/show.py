"""A verdict as the commands print it: a line for a person, or an object for a program."""

from __future__ import annotations

import json

from verifiers.verdict import Verdict

DETAIL_CHARS = 120


def print_verdict(identity: str, verdict: Verdict, *, as_json: bool, note: str = "") -> None:
    """Print one verdict.

    Args:
        identity: The row's id.
        verdict: What was found.
        as_json: Print an object of JSON, with the note as `outcome`.
        note: Stands in place of the status.
    """
    if as_json:
        record = {
            "id": identity,
            "status": verdict.status,
            "reward": verdict.score,
            "reason": verdict.reason,
            "extracted": verdict.extracted,
            **({"outcome": note} if note else {}),
        }
        print(json.dumps(record, ensure_ascii=False), flush=True)  # a program may wait for it
        return
    detail = f"  {verdict.detail.strip().splitlines()[-1][:DETAIL_CHARS]}" if verdict.detail else ""
    answer = "" if verdict.extracted is None else f"  {verdict.extracted[:DETAIL_CHARS]}"
    print(f"{identity:10s} {note or verdict.status:12s} {verdict.reason:20s}{answer}{detail}")
