"""A pool of real containers under kills, crowds and crashes."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from sandbox.backends import open_pool
from sandbox.docker_pool import check_sandbox, reap
from sandbox.engine import ContainerSpec, Engine
from sandbox.errors import Cause, SandboxUnavailable
from sandbox.image import DEFAULT_IMAGE, ensure_image
from sandbox.limits import Limits
from sandbox.options import SandboxOptions
from sandbox.owner import LABEL, Owner
from sandbox.pool import SandboxPool
from sandbox.result import ExecStatus, Job

ADD = "print(int(input()) + 1)"
OWNER = Owner.this_process()


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with closing(Engine()) as one:
        yield one


@pytest.fixture
def pool(engine: Engine) -> Iterator[SandboxPool]:
    with closing(open_pool(SandboxOptions(pool_size=2, limits=Limits(cpu_s=2.0)))) as one:
        yield one
    assert own_containers(engine) == []


def own_containers(engine: Engine, pid: int = OWNER.pid, state: str = "") -> list[str]:
    """Ids of the containers that a process has started, newest first; of one state if named."""
    listed = engine.list_labelled(LABEL)
    own = [one for one in listed if one.labels.get(f"{LABEL}.pid") == str(pid)]
    return [one.id for one in own if state in ("", one.state)]


def wait_until(condition, seconds: float = 20.0) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.05)


def add(number: int) -> Job:
    return Job(program=ADD, inputs=(str(number).encode(),), limits=Limits(cpu_s=2.0))


def test_a_crowd_shares_few_containers(pool: SandboxPool, engine: Engine) -> None:
    with ThreadPoolExecutor(40) as threads:
        results = list(threads.map(lambda number: pool.run(add(number)), range(200)))
    assert [int(one[0].stdout) for one in results] == list(range(1, 201))
    assert pool.stats().jobs == 200
    assert len(own_containers(engine)) <= 4  # two that work, one that stands by, one on its way out


def test_killed_containers_cost_no_verdict(pool: SandboxPool, engine: Engine) -> None:
    stop = threading.Event()

    def kill_now_and_then() -> None:
        while not stop.wait(1.0):
            engine.remove(own_containers(engine)[-1])  # the oldest: one that works

    killer = threading.Thread(target=kill_now_and_then)
    killer.start()
    program = "import time; time.sleep(0.1); print(int(input()) + 1)"
    with ThreadPoolExecutor(4) as threads:
        results = list(
            threads.map(
                lambda number: pool.run(Job(program=program, inputs=(str(number).encode(),))),
                range(60),
            )
        )
    stop.set()
    killer.join()
    answered = [one[0] for one in results if one[0].status is not ExecStatus.IE]
    assert {one.status for one in answered} == {ExecStatus.OK}
    assert [int(one.stdout) for one in answered] == [
        number + 1 for number, one in enumerate(results) if one[0].status is not ExecStatus.IE
    ]
    assert len(answered) >= 55
    assert pool.stats().lost.get("killed", 0) >= 1


def test_nothing_is_left_when_the_process_is_killed(engine: Engine) -> None:
    code = """
import time
from sandbox.backends import open_pool
from sandbox.options import SandboxOptions
pool = open_pool(SandboxOptions(pool_size=1))
print("up", flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        wait_until(lambda: len(own_containers(engine, child.pid, state="running")) == 2)
        os.kill(child.pid, signal.SIGKILL)
    wait_until(lambda: not own_containers(engine, child.pid))


def test_what_a_dead_process_left_is_reaped_and_nothing_else(engine: Engine) -> None:
    def create(owner: Owner) -> str:
        labels = {**owner.labels(), f"{LABEL}.uid": "none"}
        return engine.create(
            ContainerSpec(
                image=DEFAULT_IMAGE,
                command=("python3", "-c", ""),
                environment={},
                labels=labels,
                host_config={},
            )
        )

    dead = Owner(host=OWNER.host, boot=OWNER.boot, pid=OWNER.pid, started=OWNER.started + 1)
    elsewhere = Owner(host="elsewhere", boot="x", pid=1, started=1)
    left, living, foreign = create(dead), create(OWNER), create(elsewhere)
    try:
        assert reap(engine) >= 1
        ids = {one.id for one in engine.list_labelled(LABEL)}
        assert left not in ids
        assert {living, foreign} <= ids
    finally:
        for one in (left, living, foreign):
            engine.remove(one)


def test_the_image_is_there_at_once_the_second_time(engine: Engine) -> None:
    ensure_image(engine)
    start = time.monotonic()
    state = ensure_image(engine)
    assert state.origin == "present"
    assert time.monotonic() - start < 5
    assert state.megabytes < 300


def test_limits_hold_on_this_machine(engine: Engine) -> None:
    reports = check_sandbox(engine, SandboxOptions())
    assert {one.name for one in reports} == {"rights", "processes", "memory"}


@pytest.mark.parametrize(
    ("options", "cause", "cure"),
    [
        (SandboxOptions(image="verigrad-no-such:1"), Cause.NO_IMAGE, "docker pull"),
        (SandboxOptions(runtime="no-such"), Cause.NO_RUNTIME, "only .*runc.*daemon.json"),
    ],
)
def test_what_is_missing_is_named_with_its_cure(options, cause, cure) -> None:
    with pytest.raises(SandboxUnavailable, match=cure) as caught:
        open_pool(options)
    assert caught.value.cause is cause


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_engine_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    with pytest.raises(SandboxUnavailable, match="No Docker engine") as caught:
        open_pool(SandboxOptions())
    assert caught.value.cause is Cause.NO_ENGINE
    del caught
    gc.collect()  # Docker's client does not close a socket that it could not connect
