"""Verdicts on many submissions for asyncio: the event loop goes on while workers judge."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

from verifiers.judge import Judge, group_places
from verifiers.problem import Submission
from verifiers.verdict import Verdict

MAX_CONCURRENCY = 8


async def averify_batch(
    judge: Judge, submissions: Sequence[Submission], *, max_concurrency: int = MAX_CONCURRENCY
) -> list[Verdict]:
    """Judge submissions on threads that wait for the workers.

    Submissions to one problem are judged in turn, so that a repeated answer is remembered; they are
    one group for a verifier that wants it. A cancelled call starts no further submission; the one
    being judged ends at its own limits, with its worker intact.

    Args:
        judge: Its verifiers decide how many worker processes there are.
        submissions: In any order.
        max_concurrency: Problems that are judged at the same time.

    Returns:
        Verdicts in the order of the submissions.
    """
    verdicts: dict[int, Verdict] = {}
    turns = asyncio.Semaphore(max_concurrency)
    stop = threading.Event()

    def judge_group(places: Sequence[int]) -> None:
        whole = judge.wants_group(submissions[places[0]].problem.verifier)
        for unit in [places] if whole else [[place] for place in places]:
            if stop.is_set():
                return
            found = judge.verify_group([submissions[place] for place in unit])
            verdicts.update(zip(unit, found, strict=True))

    async def run_group(places: Sequence[int]) -> None:
        async with turns:
            await asyncio.to_thread(judge_group, places)

    try:
        await asyncio.gather(*(run_group(places) for places in group_places(submissions)))
    finally:
        stop.set()
    return [verdicts[place] for place in range(len(submissions))]
