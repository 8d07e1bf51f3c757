"""The pool of killable workers: limits, deaths, threads, and nothing left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from verifiers.errors import UserError
from verifiers.workers import (
    Failure,
    Outcome,
    WorkerPool,
    WorkerPoolError,
    WorkerSettings,
)

SPIN = "[0 for _ in iter(int, 1)]"


@pytest.fixture
def make_pool():
    pools = []

    def make(target="builtins:eval", *, size=1, **settings):
        pools.append(WorkerPool(WorkerSettings(target=target, **settings), size=size))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def alive(pid):
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition, limit_s=10.0):
    give_up = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < give_up, "did not come true in time"
        time.sleep(0.02)


def test_a_value_comes_back(make_pool):
    assert make_pool().run("6 * 7") == Outcome(value=42)


def test_cpu_time_is_limited_by_the_kernel_even_inside_c_code(make_pool):
    pool = make_pool(cpu_limit_s=0.3)
    for job in (SPIN, "10 ** 10 ** 9"):
        outcome = pool.run(job)
        assert outcome.failure is Failure.DEADLINE
        assert "0.3 s of CPU" in (outcome.detail or "")
        assert pool.run("1 + 1").value == 2


def test_cpu_limit_is_per_job_not_per_worker(make_pool):
    pool = make_pool(cpu_limit_s=0.5)
    pids = {pool.run("sum(range(4_000_000)) and __import__('os').getpid()").value for _ in range(8)}
    assert len(pids) == 1


def test_sleeping_without_cpu_is_stalled_not_a_limit(make_pool):
    pool = make_pool("time:sleep", wall_limit_s=0.2)
    started = time.monotonic()
    outcome = pool.run(60)
    assert outcome.failure is Failure.STALLED
    assert time.monotonic() - started < 10
    assert pool.run(0).failure is None


def test_memory_is_limited(make_pool):
    pool = make_pool(memory_mb=512)
    assert pool.run("[0] * 10**9").failure is Failure.MEMORY
    assert pool.run("len([0] * 1000)").value == 1000


def test_an_exception_comes_back_with_its_traceback(make_pool):
    outcome = make_pool().run("1 / 0")
    assert outcome.failure is Failure.RAISED
    assert "ZeroDivisionError" in (outcome.detail or "")


def test_a_value_that_cannot_be_pickled_is_an_exception(make_pool):
    pool = make_pool()
    assert pool.run("lambda: 0").failure is Failure.RAISED
    assert pool.run("3").value == 3


def test_a_worker_that_dies_is_tried_again_then_reported(make_pool):
    pool = make_pool()
    outcome = pool.run("__import__('os').kill(__import__('os').getpid(), 9)")
    assert outcome.failure is Failure.DIED
    assert "-9" in (outcome.detail or "")
    assert pool.run("2").value == 2


def test_an_idle_worker_killed_from_outside_costs_nothing(make_pool):
    pool = make_pool()
    pid = pool.run("__import__('os').getpid()").value
    os.kill(pid, signal.SIGKILL)
    assert pool.run("5").value == 5


def test_a_dead_fork_server_is_replaced(make_pool):
    pool = make_pool()
    pool.run("1")
    os.kill(pool._server.process.pid, signal.SIGKILL)
    assert pool.run("6").value == 6


def test_many_deaths_open_the_breaker(make_pool, monkeypatch):
    monkeypatch.setattr("verifiers.workers.BREAKER_DEATHS", 3)
    pool = make_pool()
    ends = "__import__('os')._exit({})"
    assert pool.run(ends.format(3)).failure is Failure.DIED  # two deaths: each job is tried twice
    with pytest.raises(WorkerPoolError, match="died within"):
        pool.run(ends.format(4))


@pytest.mark.parametrize("job", ["__import__('os')._exit(3)", SPIN])
def test_a_job_that_ended_its_worker_is_not_run_again(make_pool, job):
    pool = make_pool(cpu_limit_s=0.2)
    first = pool.run(job)
    survivor = pool.run("__import__('os').getpid()").value
    started = time.monotonic()
    assert [pool.run(job) for _ in range(100)] == [first] * 100
    assert time.monotonic() - started < 0.2  # less than running it once would take
    assert pool.run("__import__('os').getpid()").value == survivor


def test_a_stalled_job_is_tried_again(make_pool, tmp_path):
    pool = make_pool(wall_limit_s=0.3)
    flag = tmp_path / "ready"
    job = f"__import__('time').sleep(0 if __import__('os').path.exists({str(flag)!r}) else 60)"
    assert pool.run(job).failure is Failure.STALLED
    flag.touch()
    assert pool.run(job).failure is None


def test_jobs_that_cost_a_worker_are_written_down(tmp_path):
    file = tmp_path / "poison.jsonl"
    pool = WorkerPool(
        WorkerSettings(target="builtins:eval", cpu_limit_s=0.2), poison_file=str(file)
    )
    try:
        for job in ("__import__('os')._exit(3)", "1 + 1", SPIN, SPIN, "1 / 0"):
            pool.run(job)
    finally:
        pool.close()
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(row["failure"], row["arguments"]) for row in rows] == [
        ("died", [repr("__import__('os')._exit(3)")]),
        ("deadline", [repr(SPIN)]),
    ]
    assert rows[1]["target"] == "builtins:eval"
    assert "0.2 s of CPU" in rows[1]["detail"]


def test_workers_are_replaced_after_their_jobs(make_pool):
    pool = make_pool(max_jobs=3)
    pids = [pool.run("__import__('os').getpid()").value for _ in range(9)]
    assert len(set(pids)) == 3
    wait_until(lambda: not alive(pids[0]))


def test_threads_share_a_pool(make_pool):
    pool = make_pool(size=2)
    results = {}

    def work(number):
        results[number] = [pool.run(f"{number} * {i}").value for i in range(20)]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: [n * i for i in range(20)] for n in range(8)}


def test_a_hung_job_does_not_hold_up_its_neighbour(make_pool):
    pool = make_pool(size=2, cpu_limit_s=3.0)
    pool.run("1")
    hung = threading.Thread(target=pool.run, args=(SPIN,))
    hung.start()
    time.sleep(0.1)
    started = time.monotonic()
    assert pool.run("7").value == 7
    assert time.monotonic() - started < 1.0
    hung.join()


def test_asyncio_can_use_a_pool(make_pool):
    pool = make_pool(size=2)

    async def gather():
        return await asyncio.gather(*(asyncio.to_thread(pool.run, f"{i}") for i in range(10)))

    assert [outcome.value for outcome in asyncio.run(gather())] == list(range(10))


def test_setup_that_fails_is_an_error_of_the_pool(make_pool):
    pool = make_pool(setup="math:sqrt", setup_args=("not a number",))
    with pytest.raises(WorkerPoolError, match="failed"):
        pool.run("1")


def test_a_closed_pool_refuses_work_and_leaves_no_process(make_pool):
    pool = make_pool()
    worker = pool.run("__import__('os').getpid()").value
    server = pool._server.process.pid
    pool.close()
    wait_until(lambda: not alive(worker) and not alive(server))
    with pytest.raises(WorkerPoolError, match="closed"):
        pool.run("1")


def test_nothing_outlives_a_caller_that_is_killed():
    program = (
        "import os, time\n"
        "from verifiers.workers import *\n"
        "pool = WorkerPool(WorkerSettings(target='builtins:eval'))\n"
        "worker = pool.run(\"__import__('os').getpid()\").value\n"
        "print(worker, pool._server.process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as caller:
        assert caller.stdout is not None
        worker, server = map(int, caller.stdout.readline().split())
        assert alive(worker)
        caller.kill()
    wait_until(lambda: not alive(worker) and not alive(server))


def test_the_caller_keeps_its_signals_and_timers(make_pool):
    handlers = [signal.getsignal(s) for s in (signal.SIGALRM, signal.SIGPROF, signal.SIGCHLD)]
    signal.setitimer(signal.ITIMER_REAL, 1000)
    try:
        make_pool(cpu_limit_s=0.2).run(SPIN)
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 900
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    assert [
        signal.getsignal(s) for s in (signal.SIGALRM, signal.SIGPROF, signal.SIGCHLD)
    ] == handlers


def test_a_worker_of_maths_stays_small(make_pool):
    pool = make_pool(preload=("sympy", "latex2sympy2_extended"))
    kilobytes = pool.run("__import__('resource').getrusage(0).ru_maxrss").value
    assert kilobytes < 200 * 1024


def test_a_poison_file_without_a_folder_is_refused_at_once(tmp_path):
    file = str(tmp_path / "nowhere" / "poison.jsonl")
    with pytest.raises(UserError, match="there is no folder"):
        WorkerPool(WorkerSettings(target="builtins:eval"), poison_file=file)
