import threading
import time
from typing import Any

import pytest

from sandbox.breaker import LOST_SHARE, MIN_JOBS, CircuitBreaker
from sandbox.errors import PoolFull, WorkerLost
from sandbox.limits import Limits
from sandbox.options import SandboxOptions
from sandbox.pool import MAX_TRIES, RETRY_PAUSE_S, SandboxPool
from sandbox.result import ExecResult, ExecStatus, Flag, InfraCause, Job, infra_result
from sandbox.runner import PROBE, PROBE_OUTPUT

OK = ExecResult(status=ExecStatus.OK)
JOB = Job(program="p", inputs=(b"",))
STALLED = infra_result(InfraCause.STALLED, "slow")


class FakeRunner:
    """Plays one script of answers: a result, or an exception to raise."""

    def __init__(self, factory):
        self.factory = factory
        self.runs = 0
        self.born = time.monotonic()
        self.tainted = None
        self.gone = False
        self.closed = threading.Event()

    def run(self, job):
        if job is PROBE:
            return (self.factory.probe,)
        answer = self.factory.next_answer(self)
        if isinstance(answer, BaseException):
            raise answer
        self.runs += 1
        return (answer,) * job.num_runs

    def alive(self):
        return not self.gone

    def close(self):
        self.closed.set()


class Factory:
    def __init__(self, *answers: Any, default: Any = OK):
        self.answers = list(answers)
        self.default = default
        self.made = []
        self.lock = threading.Lock()
        self.down = False
        self.probe = ExecResult(status=ExecStatus.OK, stdout=PROBE_OUTPUT)

    def __call__(self):
        if self.down:
            raise WorkerLost("engine", "the engine is away")
        runner = FakeRunner(self)
        with self.lock:
            self.made.append(runner)
        return runner

    def next_answer(self, _runner):
        with self.lock:
            answer = self.answers.pop(0) if self.answers else self.default
        return answer() if callable(answer) else answer


def died():
    return WorkerLost("died", "the container ended")


@pytest.fixture
def make_pool():
    pools = []

    def make(factory, **changes):
        options = SandboxOptions(**{"pool_size": 1, "spares": 1, "engine_wait_s": 5.0, **changes})
        pool = SandboxPool(factory, options)
        pools.append(pool)
        return pool

    yield make
    for pool in pools:
        pool.close()
        assert all(runner.closed.is_set() for runner in pool._stock._launch.made)


def wait_until(condition):
    give_up = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def test_a_lost_container_is_replaced_and_its_job_retried(make_pool):
    factory = Factory(died)
    pool = make_pool(factory)
    assert pool.run(JOB) == (OK,)
    wait_until(lambda: len(factory.made) == 3)
    assert pool.stats().lost == {"died": 1}


def test_trouble_that_stays_is_no_verdict(make_pool):
    factory = Factory(default=lambda: WorkerLost("protocol", "nonsense"))
    pool = make_pool(factory)
    (result,) = pool.run(JOB)
    assert result.status is ExecStatus.IE
    assert result.infra is InfraCause.LOST
    assert pool.stats().lost == {"protocol": MAX_TRIES}


def test_a_program_that_takes_fresh_containers_down_is_judged(make_pool):
    factory = Factory(default=died)
    (result,) = make_pool(factory).run(JOB)
    assert result.status is ExecStatus.RE
    assert result.flags == {Flag.SV}


def test_no_program_is_blamed_for_containers_that_were_gone_before(make_pool):
    factory = Factory()
    pool = make_pool(factory, spares=3)
    wait_until(lambda: len(factory.made) == 4)
    for runner in factory.made[:4]:
        runner.gone = True
    assert pool.run(JOB) == (OK,)
    assert pool.stats().lost == {}
    assert pool.stats().retired["gone"] >= 1


def test_a_stall_is_run_once_more(make_pool):
    factory = Factory(STALLED)
    assert make_pool(factory).run(JOB) == (OK,)


def test_two_stalls_are_no_verdict(make_pool):
    factory = Factory(STALLED, STALLED)
    (result,) = make_pool(factory).run(JOB)
    assert result.infra is InfraCause.STALLED
    assert factory.answers == []


def test_old_and_tainted_containers_retire(make_pool):
    factory = Factory()
    pool = make_pool(factory, max_runs_per_container=3)
    for _ in range(3):
        pool.run(JOB)
    wait_until(lambda: factory.made[0].closed.is_set() or factory.made[1].closed.is_set())
    assert pool.stats().retired == {"runs": 1}
    for runner in factory.made:
        runner.tainted = "leftover processes"
    pool.run(JOB)
    assert pool.stats().retired["leftover processes"] == 1


def test_no_more_than_pool_size_run_at_once(make_pool):
    running, most = [], []

    def slow():
        running.append(1)
        most.append(len(running))
        time.sleep(0.01)
        running.pop()
        return OK

    pool = make_pool(Factory(default=slow), pool_size=3, spares=2)
    threads = [threading.Thread(target=pool.run, args=(JOB,)) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pool.stats().jobs == 30
    assert max(most) <= 3


def test_jobs_are_served_in_the_order_in_which_they_came(make_pool):
    served, release = [], threading.Event()

    class Recorder(FakeRunner):
        def run(self, job):
            served.append(job.program)
            release.wait(10)
            return super().run(job)

    class Recorders(Factory):
        def __call__(self):
            runner = Recorder(self)
            self.made.append(runner)
            return runner

    def job(name):
        return Job(program=str(name), inputs=(b"",))

    pool = make_pool(Recorders(), pool_size=1, spares=1)

    def run_first_and_last():
        pool.run(job("first"))
        pool.run(job("last"))  # at once, when all others have been waiting for long

    threads = [threading.Thread(target=run_first_and_last)]
    threads += [threading.Thread(target=pool.run, args=(job(one),)) for one in range(8)]
    for number, thread in enumerate(threads):
        thread.start()
        wait_until(lambda: served == ["first"] and len(pool._stock._line) == number)  # noqa: B023
    release.set()
    for thread in threads:
        thread.join()
    assert served == ["first", *map(str, range(8)), "last"]


def test_a_job_that_is_made_again_goes_before_those_that_came_later(make_pool):
    served, release = [], threading.Event()

    def lose_the_first():
        release.wait(10)
        return WorkerLost("protocol", "nonsense")

    class Recorder(FakeRunner):
        def run(self, job):
            served.append(job.program)
            return super().run(job)

    class Recorders(Factory):
        def __call__(self):
            runner = Recorder(self)
            self.made.append(runner)
            return runner

    def slow():
        time.sleep(3 * RETRY_PAUSE_S)
        return OK

    pool = make_pool(Recorders(lose_the_first, slow), pool_size=1, spares=2)
    names = ["lost", "a", "b", "c"]
    threads = [
        threading.Thread(target=pool.run, args=(Job(program=name, inputs=(b"",)),))
        for name in names
    ]
    for number, thread in enumerate(threads):
        thread.start()
        wait_until(lambda: served == ["lost"] and len(pool._stock._line) == number)  # noqa: B023
    release.set()
    for thread in threads:
        thread.join()
    assert served == ["lost", "a", "lost", "b", "c"]


def test_an_engine_that_stays_away_is_no_verdict(make_pool):
    factory = Factory()
    factory.down = True
    pool = make_pool(factory, engine_wait_s=0.2)
    (result,) = pool.run(JOB)
    assert result.infra is InfraCause.UNAVAILABLE
    assert "away" in result.detail


def test_an_engine_that_comes_back_is_used(make_pool):
    factory = Factory()
    factory.down = True
    pool = make_pool(factory)
    threading.Timer(0.3, setattr, (factory, "down", False)).start()
    assert pool.run(JOB) == (OK,)


def test_many_losses_replace_all_containers(make_pool):
    factory = Factory(default=lambda: WorkerLost("protocol", "nonsense"))
    pool = make_pool(factory, pool_size=2, spares=2)
    while sum(pool.stats().lost.values()) < MIN_JOBS:
        pool.run(JOB)
    assert pool.stats().retired.get("breaker", 0) > 0


def test_after_an_outage_jobs_are_refused_at_once_until_the_engine_is_back(make_pool):
    factory = Factory()
    factory.down = True
    pool = make_pool(factory, engine_wait_s=0.2)
    assert pool.run(JOB)[0].infra is InfraCause.UNAVAILABLE
    started = time.monotonic()
    assert pool.run(JOB)[0].infra is InfraCause.UNAVAILABLE
    assert time.monotonic() - started < 0.2
    factory.down = False
    wait_until(lambda: pool.run(JOB) == (OK,))
    assert pool.stats().outages == 1


def test_containers_that_fail_their_trial_are_not_used(make_pool):
    factory = Factory()
    factory.down = True
    factory.probe = ExecResult(status=ExecStatus.RE)
    pool = make_pool(factory, engine_wait_s=0.5)
    threading.Timer(0.1, setattr, (factory, "down", False)).start()
    (result,) = pool.run(JOB)
    assert result.infra is InfraCause.UNAVAILABLE
    assert "trial program" in result.detail
    wait_until(lambda: factory.made)
    assert factory.made[0].closed.is_set()
    factory.probe = ExecResult(status=ExecStatus.OK, stdout=PROBE_OUTPUT)
    wait_until(lambda: pool.run(JOB) == (OK,))


def test_a_job_that_somebody_kills_the_containers_of_is_not_blamed(make_pool):
    factory = Factory(default=lambda: WorkerLost("killed", "the container ended"))
    (result,) = make_pool(factory).run(JOB)
    assert result.infra is InfraCause.LOST


def test_the_queue_has_an_end(make_pool):
    factory = Factory(default=lambda: time.sleep(0.3) or OK)
    pool = make_pool(factory, max_waiting=1)
    outcomes = []

    def submit():
        try:
            outcomes.append(pool.run(JOB))
        except PoolFull:
            outcomes.append("full")

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
        time.sleep(0.02)
    for thread in threads:
        thread.join()
    assert sorted(outcomes, key=str) == sorted([(OK,), (OK,), "full", "full"], key=str)


def test_the_breaker_waits_then_refuses_then_forgets():
    now = [0.0]
    breaker = CircuitBreaker(patience_s=10, clock=lambda: now[0])
    breaker.engine_failed("away")
    assert breaker.refusal() is None
    now[0] = 11.0
    breaker.engine_failed("still away")
    assert breaker.refusal() == "still away"
    breaker.engine_works()
    assert (breaker.refusal(), breaker.is_open) == (None, False)


def test_the_breaker_opens_at_many_losses_only():
    breaker = CircuitBreaker(patience_s=0)
    few = int(LOST_SHARE * MIN_JOBS)
    assert not any(breaker.job_ended(lost=index < few) for index in range(MIN_JOBS))
    assert breaker.job_ended(lost=True)
    assert "lost their container" in (breaker.refusal() or "")
    assert not breaker.job_ended(lost=True)  # open already


def test_closing_ends_jobs_that_wait(make_pool):
    factory = Factory()
    factory.down = True
    pool = make_pool(factory, engine_wait_s=60.0)
    results = []
    thread = threading.Thread(target=lambda: results.extend(pool.run(JOB)))
    thread.start()
    time.sleep(0.05)
    pool.close()
    thread.join(5)
    assert results[0].infra is InfraCause.UNAVAILABLE


def test_an_interrupt_loses_no_place_in_the_pool(make_pool):
    pool = make_pool(Factory(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        pool.run(JOB)
    assert pool.run(JOB) == (OK,)


def test_more_memory_than_the_containers_have_is_an_error(make_pool):
    pool = make_pool(Factory())
    with pytest.raises(ValueError, match="memory_mb"):
        pool.run(Job(program="p", inputs=(b"",), limits=Limits(memory_mb=4096)))
