"""An engine that is killed, restarted, stalled and full, and a pool that gets over it.

The engine is the tests' own, its folder a small disk in memory.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import docker
import pytest

from sandbox.backends import check_backend, open_pool
from sandbox.errors import Cause, SandboxUnavailable
from sandbox.limits import Limits
from sandbox.options import SandboxOptions
from sandbox.owner import LABEL
from sandbox.pool import SandboxPool
from sandbox.result import ExecStatus, InfraCause, Job
from tests.engines import OwnEngine

# Docker's client does not close a socket that it could not connect.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
DISK_MB = 500
OPTIONS = SandboxOptions(pool_size=2, limits=Limits(cpu_s=2.0), engine_wait_s=60.0)


@pytest.fixture(scope="module")
def own_engine(tmp_path_factory) -> Iterator[OwnEngine]:
    disk = tmp_path_factory.mktemp("disk")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(disk)]
    subprocess.run(mount, check=True)
    try:
        with OwnEngine(disk) as engine, pytest.MonkeyPatch.context() as patch:
            engine.load_image()
            patch.setenv("DOCKER_HOST", engine.url)
            yield engine
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.fixture(autouse=True)
def _collect() -> Iterator[None]:
    yield
    gc.collect()  # while the warning is still expected


@pytest.fixture
def pool(own_engine) -> Iterator[SandboxPool]:
    with closing(open_pool(OPTIONS)) as one:
        yield one


def add(number: int, pause: float = 0.05) -> Job:
    program = f"import time; time.sleep({pause}); print(int(input()) + 1)"
    return Job(program=program, inputs=(str(number).encode(),), limits=OPTIONS.limits)


def judge_while(pool: SandboxPool, trouble: Callable[[], None], jobs: int = 60) -> None:
    """Every job must get its right result, whatever happens meanwhile."""
    happening = threading.Timer(0.3, trouble)
    happening.start()
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda number: pool.run(add(number))[0], range(jobs)))
    happening.join()
    assert [one.stdout for one in results] == [b"%d\n" % (number + 1) for number in range(jobs)]


@contextmanager
def full_disk(engine: OwnEngine) -> Iterator[None]:
    filler = engine.folder / "filler"
    with filler.open("wb") as file:
        try:
            while True:
                file.write(bytes(1 << 16))
                file.flush()
        except OSError:
            pass  # that was the last of it
        finally:
            with pytest.raises(OSError, match="space"):
                (engine.folder / "more").write_bytes(bytes(1 << 16))
    try:
        yield
    finally:
        filler.unlink()


@pytest.mark.parametrize(
    "kind", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.long)]
)
def test_a_restart_of_the_engine_costs_no_verdict(own_engine, pool, kind):
    def restart() -> None:
        own_engine.stop(kind)
        own_engine.start()

    judge_while(pool, restart)
    assert pool.stats().outages >= 1


def test_a_stalled_machine_makes_no_program_slow(own_engine, pool):
    def stall() -> None:
        with closing(docker.DockerClient(base_url=own_engine.url)) as client:
            busy = client.containers.list(filters={"label": LABEL})
            for one in busy:
                one.pause()
            time.sleep(3)
            for one in busy:
                one.unpause()

    limits = Limits(cpu_s=0.5, wall_s=1.0)
    job = Job(program=add(1, 0.2).program, inputs=(b"1",) * 4, limits=limits)
    while pool.stats().launched < OPTIONS.stock:
        time.sleep(0.05)
    stalling = threading.Timer(0.2, stall)
    stalling.start()
    with ThreadPoolExecutor(2) as threads:
        results = [one for jobs in threads.map(pool.run, [job] * 6) for one in jobs]
    stalling.join()
    assert {one.status for one in results} == {ExecStatus.OK}
    assert max(one.wall_s for one in results) > 2  # it did wait


def test_an_engine_that_stays_away_is_named_and_used_again(own_engine):
    options = SandboxOptions(pool_size=1, limits=OPTIONS.limits, engine_wait_s=0.5)
    with closing(open_pool(options)) as pool:
        own_engine.stop()
        try:
            (result,) = pool.run(add(1))
            assert result.infra is InfraCause.UNAVAILABLE
            assert "no container can be had" in result.detail
            with pytest.raises(SandboxUnavailable, match="No Docker engine answers"):
                check_backend(options)
        finally:
            own_engine.start()
        give_up = time.monotonic() + 30
        while pool.run(add(1))[0].stdout != b"2\n":
            assert time.monotonic() < give_up
            time.sleep(0.1)


def test_a_full_disk_is_named_and_got_over(own_engine):
    options = SandboxOptions(pool_size=1, spares=0, limits=OPTIONS.limits, engine_wait_s=0.5)
    with closing(open_pool(options)) as pool:
        assert pool.run(add(1))[0].stdout == b"2\n"
        with full_disk(own_engine):
            with pytest.raises(SandboxUnavailable, match="docker system prune") as caught:
                open_pool(options)
            assert caught.value.cause is Cause.NO_SPACE
            assert pool.run(add(2))[0].stdout == b"3\n"  # a warm container needs no disk
            with closing(docker.DockerClient(base_url=own_engine.url)) as client:
                for one in client.containers.list(filters={"label": LABEL}):
                    one.kill()
            (result,) = pool.run(add(3))
            assert result.infra is InfraCause.UNAVAILABLE
            assert "no space left" in result.detail
        give_up = time.monotonic() + 30
        while pool.run(add(4))[0].stdout != b"5\n":
            assert time.monotonic() < give_up
            time.sleep(0.1)


def test_an_engine_that_this_user_may_not_use_is_named(own_engine):
    os.seteuid(65_534)
    try:
        with pytest.raises(SandboxUnavailable, match="usermod") as caught:
            check_backend(OPTIONS)
    finally:
        os.seteuid(0)
    assert caught.value.cause is Cause.PERMISSION
