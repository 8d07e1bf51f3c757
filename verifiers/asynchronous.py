"""Verdicts for asyncio: the event loop goes on while workers judge."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

from verifiers.judge import Judge
from verifiers.problem import Submission
from verifiers.verdict import Verdict

MAX_CONCURRENCY = 8


async def averify(judge: Judge, submission: Submission) -> Verdict:
    """Judge one submission; see `averify_batch`."""
    (verdict,) = await averify_batch(judge, [submission])
    return verdict


async def averify_batch(
    judge: Judge, submissions: Sequence[Submission], *, max_concurrency: int = MAX_CONCURRENCY
) -> list[Verdict]:
    """Judge submissions on threads that wait for the workers.

    Submissions to one problem are judged in turn, so that a repeated answer is remembered. A
    cancelled call starts no further submission; the one being judged ends at its own limits, with
    its worker intact.

    Args:
        judge: Its verifiers decide how many worker processes there are.
        submissions: In any order.
        max_concurrency: Problems that are judged at the same time.

    Returns:
        Verdicts in the order of the submissions.
    """
    groups: dict[str, list[int]] = {}
    for place, submission in enumerate(submissions):
        groups.setdefault(submission.problem.id, []).append(place)
    verdicts: dict[int, Verdict] = {}
    turns = asyncio.Semaphore(max_concurrency)
    stop = threading.Event()

    def judge_group(places: Sequence[int]) -> None:
        for place in places:
            if stop.is_set():
                return
            verdicts[place] = judge.judge(submissions[place])

    async def run_group(places: Sequence[int]) -> None:
        async with turns:
            await asyncio.to_thread(judge_group, places)

    try:
        await asyncio.gather(*(run_group(places) for places in groups.values()))
    finally:
        stop.set()
    return [verdicts[place] for place in range(len(submissions))]
