"""Verdicts for asyncio."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from verifiers.asynchronous import averify_batch
from verifiers.judge import Judge
from verifiers.problem import Problem, Submission
from verifiers.protocol import Verifier
from verifiers.verdict import Reason, Status, Verdict

LIMIT_S = 10.0


class SlowVerifier(Verifier):
    """Says which thread judged what; waits for a signal where a completion asks for it."""

    name = "slow"
    version = 1

    def __init__(self):
        self.seen = []
        self.release = threading.Event()

    def prepare(self, problem):
        pass

    def verify(self, submission):
        self.seen.append((submission.completion, threading.get_ident()))
        if submission.completion == "wait":
            assert self.release.wait(LIMIT_S)
        return Verdict(
            status=Status.CORRECT,
            score=1.0,
            reason=Reason.ACCEPTED,
            verifier="slow@1",
            extracted=submission.completion,
        )

    def close(self):
        pass


@pytest.fixture
def slow():
    return SlowVerifier()


@pytest.fixture
def judge(slow, monkeypatch):
    monkeypatch.setattr("verifiers.judge.build_verifier", lambda *_: slow)
    return Judge({"slow": {}})


def submission(problem, completion):
    row = Problem(id=problem, prompt="", verifier="slow", reference="", source="row")
    return Submission(problem=row, completion=completion)


async def until(condition):
    give_up = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < give_up
        await asyncio.sleep(0.005)


def test_verdicts_come_in_the_order_of_the_submissions(judge, slow):
    submissions = [submission(p, f"{p}{i}") for i in range(3) for p in "abc"]
    verdicts = asyncio.run(averify_batch(judge, submissions))
    assert [v.extracted for v in verdicts] == [s.completion for s in submissions]
    assert asyncio.run(averify_batch(judge, [])) == []


def test_a_group_is_judged_in_turn(judge, slow):
    asyncio.run(averify_batch(judge, [submission("a", str(i)) for i in range(5)]))
    assert [completion for completion, _ in slow.seen] == list("01234")
    assert len({thread for _, thread in slow.seen}) == 1


def test_the_event_loop_goes_on_meanwhile(judge, slow):
    async def work():
        waiting = asyncio.create_task(judge.averify(submission("a", "wait")))
        await until(lambda: slow.seen)
        quick = await judge.averify(submission("b", "quick"))
        assert not waiting.done()
        slow.release.set()
        return quick, await waiting

    quick, waited = asyncio.run(work())
    assert (quick.extracted, waited.extracted) == ("quick", "wait")


def test_a_cancelled_batch_starts_nothing_more(judge, slow):
    async def work():
        batch = [submission("a", "wait"), submission("a", "later"), submission("b", "other group")]
        task = asyncio.create_task(averify_batch(judge, batch, max_concurrency=1))
        await until(lambda: slow.seen)
        task.cancel()
        started = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - started < LIMIT_S / 2
        slow.release.set()
        return await judge.averify(submission("c", "after"))

    assert asyncio.run(work()).extracted == "after"
    assert [completion for completion, _ in slow.seen] == ["wait", "after"]


def test_max_concurrency_bounds_the_problems_at_work(judge, slow):
    async def work():
        batch = [submission(problem, "wait") for problem in "abcde"]
        task = asyncio.create_task(averify_batch(judge, batch, max_concurrency=2))
        await until(lambda: len(slow.seen) == 2)
        await asyncio.sleep(0.05)
        at_work = len(slow.seen)
        slow.release.set()
        await task
        return at_work

    assert asyncio.run(work()) == 2
