"""What the learner's ranks answer, or the error that names why one does not."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from grpo.learner.errors import LearnerDied, LearnerFailed, LearnerStalled
from grpo.learner.invariants import InvariantBroken
from grpo.learner.watch import ASK_EVERY_S, RankWatch
from verifiers.errors import UserError


def collect_answers(
    actors: Sequence[Any],
    references: list[Any],
    doing: str,
    *,
    stall_timeout_s: float,
    timeout_s: float,
) -> list[Any]:
    """Wait for all answers, but only until the first failure or standstill.

    Args:
        actors: The ranks.
        references: Their answers to come, of one or several calls, each in the order of the ranks.
        doing: What they were asked for, for errors.
        stall_timeout_s: Longest time in which no rank may get anything done.
        timeout_s: Longest time in all.

    Raises:
        LearnerDied: A process is gone.
        LearnerFailed: A rank raised an error.
        LearnerStalled: It took too long.
    """
    started = time.monotonic()
    watch = RankWatch(actors)
    waiting = list(references)
    while waiting:
        done, waiting = ray.wait(waiting, num_returns=1, timeout=ASK_EVERY_S)
        watch.ask()
        spent_s = time.monotonic() - started
        if done:
            rank = references.index(done[0]) % len(actors)
            read_answer(done[0], rank, doing, describe=watch.describe)
        elif watch.idle_s > stall_timeout_s or spent_s > timeout_s:
            raise LearnerStalled(
                f"the learner has been {doing} for {spent_s:.0f} s, the last {watch.idle_s:.0f} s "
                "without getting anything done",
                stack=watch.collect_stacks(),
            )
    return ray.get(references)


def read_answer(
    reference: Any, rank: int, doing: str, *, describe: Callable[[int], str] = lambda _: ""
) -> Any:
    """An answer that is there; Ray's errors become errors with a name.

    Args:
        reference: The answer.
        rank: Whose.
        doing: What it was asked for.
        describe: Says the last that is known of a rank.
    """
    try:
        return ray.get(reference)
    except RayTaskError as error:
        cause = error.cause
        if isinstance(cause, UserError | InvariantBroken):
            raise cause from error
        raise LearnerFailed(
            f"learner rank {rank} raised {type(cause).__name__} while {doing}: {cause}"
        ) from error
    except RayError as error:
        # Its process died, or the answer was lost with the node.
        raise LearnerDied(
            f"learner rank {rank} died while {doing}. {error}{describe(rank)}"
        ) from error
