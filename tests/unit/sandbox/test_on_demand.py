"""Pools that are opened by their first job, on containers that are played."""

import threading
import time

import pytest

import sandbox.on_demand
from sandbox.errors import Cause, SandboxUnavailable
from sandbox.limits import Limits
from sandbox.on_demand import LARGE_MEMORY_MB, pool_for_large_programs, pool_for_tests
from sandbox.options import SandboxOptions
from sandbox.result import ExecResult, ExecStatus, InfraCause, Job

OPTIONS = SandboxOptions(pool_size=3, spares=2, limits=Limits(cpu_s=2.0))
LARGE = Job(program="p", inputs=(b"",), limits=Limits(memory_mb=LARGE_MEMORY_MB))


class Played:
    """A container that notes how many of its kind run at a time."""

    running = 0
    most = 0

    def __init__(self):
        self.runs = 0
        self.born = time.monotonic()
        self.tainted = None

    def run(self, job):
        type(self).running += 1
        type(self).most = max(self.most, self.running)
        time.sleep(0.02)
        type(self).running -= 1
        return (ExecResult(status=ExecStatus.OK),) * job.num_runs

    def alive(self):
        return True

    def close(self):
        pass


@pytest.fixture
def started(monkeypatch):
    """Settings of every container that was started, and the kind of these."""
    settings = []

    class Container(Played):
        pass

    def start(_engine, options, _lock):
        settings.append(options)
        return Container()

    class NoEngine:
        def close(self):
            pass

    monkeypatch.setattr(sandbox.on_demand, "Engine", NoEngine)
    monkeypatch.setattr(sandbox.on_demand, "start_container", start)
    return settings, Container


def test_large_programs_run_one_at_a_time_in_containers_of_their_size(started):
    settings, kind = started
    pool = pool_for_large_programs(OPTIONS)
    threads = [threading.Thread(target=pool.run, args=(LARGE,)) for _ in range(4)]
    assert settings == []
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pool.close()
    assert kind.most == 1
    (options,) = settings
    assert options.limits == Limits(cpu_s=2.0, memory_mb=LARGE_MEMORY_MB)
    assert not options.for_tests


def test_test_code_has_containers_that_are_made_for_it(started):
    settings, _ = started
    pool = pool_for_tests(OPTIONS)
    assert pool.run(LARGE)[0].status is ExecStatus.OK
    pool.close()
    assert {(one.for_tests, one.limits.memory_mb) for one in settings} == {(True, LARGE_MEMORY_MB)}
    assert len(settings) <= OPTIONS.pool_size


def test_an_engine_that_is_gone_is_no_verdict(monkeypatch):
    def refuse():
        raise SandboxUnavailable(Cause.NO_ENGINE, "start it")

    monkeypatch.setattr(sandbox.on_demand, "Engine", refuse)
    (result,) = pool_for_large_programs(OPTIONS).run(LARGE)
    assert (result.infra, result.detail) == (InfraCause.UNAVAILABLE, "start it")
