"""Many verdicts while containers die, the engine restarts, the machine is busy: all are right."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace

import psutil
import pytest

from sandbox.backends import open_pool
from sandbox.engine import ENGINE_ERRORS, Engine
from sandbox.limits import Limits
from sandbox.options import SandboxOptions
from sandbox.owner import LABEL
from sandbox.pool import PoolStats, SandboxPool
from sandbox.result import Call, ExecResult, ExecStatus, Job
from tests.engines import OwnEngine

# Docker's client does not close a socket that it could not connect.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
THREADS = 6
RETRIES = 5
LIMITS = Limits(cpu_s=1.0)
OPTIONS = SandboxOptions(pool_size=2, limits=LIMITS, max_runs_per_container=300)
HOG = "while True: pass"


@pytest.fixture(autouse=True)
def _collect() -> Iterator[None]:
    yield
    gc.collect()  # while the warning is still expected


@dataclass(frozen=True, slots=True)
class Item:
    """A job, and what must come of it."""

    job: Job
    status: ExecStatus
    output: object = None

    def is_right(self, result: ExecResult) -> bool:
        found = result.value if self.job.calls else result.stdout
        return result.status is self.status and self.output in (None, found)


@dataclass(slots=True)
class Sizes:
    """What must not grow: readings taken while the soak runs."""

    containers: list[int] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    megabytes: list[float] = field(default_factory=list)


def make_item(number: int) -> Item:
    """Mostly honest programs, and now and then one that needs its container replaced."""

    def reads(program: str, status: ExecStatus, output: object = None) -> Item:
        return Item(Job(program=program, inputs=(b"%d" % number,), limits=LIMITS), status, output)

    match number % 50:
        case 7:
            return reads("while True: pass", ExecStatus.TLE)
        case 17:
            return reads("x = bytearray(1 << 40)", ExecStatus.MLE)
        case 27:
            return reads("raise ValueError", ExecStatus.RE)
        case 37:
            return reads("while True: print('x' * 9999)", ExecStatus.OLE)
        case kind if kind % 2:
            calls = (Call(function="f", arguments=(number,)),)
            job = Job(program="def f(x): return [x, str(x)]", calls=calls, limits=LIMITS)
            return Item(job, ExecStatus.OK, [number, str(number)])
        case _:
            return reads("print(int(input()) * 2)", ExecStatus.OK, b"%d\n" % (2 * number))


def judge(pool: SandboxPool, item: Item) -> tuple[ExecResult, int]:
    """The result of an item, and how often it was not judged before that."""
    for tries in itertools.count():
        (result,) = pool.run(item.job)
        if result.status is not ExecStatus.IE:
            # Kept to the end: of a program that wrote too much, a megabyte each.
            return replace(result, stdout=result.stdout[:100]), tries
        assert tries < RETRIES, result.detail
        time.sleep(1.0)
    raise AssertionError("unreachable")


def own_containers(engine: Engine) -> list[str]:
    listed = engine.list_labelled(LABEL)
    own = [one for one in listed if one.labels.get(f"{LABEL}.pid") == str(os.getpid())]
    return [one.id for one in own if one.state == "running"]


@contextlib.contextmanager
def hog() -> Iterator[None]:
    """A process that takes all the CPU time it can get."""
    with subprocess.Popen([sys.executable, "-c", HOG]) as process:
        try:
            yield
        finally:
            process.kill()


def read_sizes(engine: Engine, sizes: Sizes) -> None:
    gc.collect()
    process = psutil.Process()
    with contextlib.suppress(*ENGINE_ERRORS):
        sizes.containers.append(len(own_containers(engine)))
    sizes.descriptors.append(process.num_fds())
    sizes.megabytes.append(process.memory_info().rss / 2**20)


def kill_one(engine: Engine, generator: random.Random) -> None:
    with contextlib.suppress(*ENGINE_ERRORS):
        containers = own_containers(engine)
        if containers:
            engine.remove(generator.choice(containers))


def soak(
    pool: SandboxPool, engine: Engine, items: Sequence[Item], *, kill_every_s: float
) -> tuple[list[tuple[ExecResult, int]], Sizes]:
    """Judge everything while containers are killed now and then."""
    sizes, stop, generator = Sizes(), threading.Event(), random.Random(0)

    def disturb() -> None:
        while not stop.wait(kill_every_s):
            kill_one(engine, generator)
            read_sizes(engine, sizes)

    disturber = threading.Thread(target=disturb)
    disturber.start()
    try:
        with ThreadPoolExecutor(THREADS) as threads:
            return list(threads.map(lambda item: judge(pool, item), items)), sizes
    finally:
        stop.set()
        disturber.join()


def check(items: Sequence[Item], results: Sequence[tuple[ExecResult, int]]) -> None:
    wrong = [
        (item.job.program, item.status, result)
        for item, (result, _) in zip(items, results, strict=True)
        if not item.is_right(result)
    ]
    assert wrong == []


def test_every_container_is_killed_amid_some_hundred_verdicts() -> None:
    items = [make_item(number) for number in range(200)]
    results = []
    with closing(Engine()) as engine:
        with closing(open_pool(OPTIONS)) as pool, ThreadPoolExecutor(THREADS) as threads:
            for result in threads.map(lambda item: judge(pool, item), items):
                results.append(result)
                if len(results) == len(items) // 4:
                    for container in own_containers(engine):
                        engine.remove(container)
            check(items, results)
            stats = pool.stats()
        assert stats.lost.get("killed", 0) + stats.retired.get("gone", 0) >= 1
        assert own_containers(engine) == []


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_ten_thousand_verdicts(tmp_path_factory, monkeypatch, capsys) -> None:
    items = [make_item(number) for number in range(int(os.environ.get("SOAK_ITEMS", "10000")))]
    own = OwnEngine(tmp_path_factory.mktemp("engine"))
    with own, hog():
        own.load_image()
        monkeypatch.setenv("DOCKER_HOST", own.url)
        with closing(Engine()) as engine, closing(open_pool(OPTIONS)) as pool:
            start = time.monotonic()
            results: list[tuple[ExecResult, int]] = []
            readings = Sizes()
            parts = [items[place::3] for place in range(3)]
            for part in parts:
                restart = threading.Timer(5.0, lambda: (own.stop(), own.start()))
                if part is not parts[0]:  # two of the three parts
                    restart.start()
                found, sizes = soak(pool, engine, part, kill_every_s=5.0)
                check(part, found)
                results += found
                for name in ("containers", "descriptors", "megabytes"):
                    getattr(readings, name).extend(getattr(sizes, name))
                if part is not parts[0]:
                    restart.join()
            seconds, stats = time.monotonic() - start, pool.stats()
    with capsys.disabled():
        sys.stdout.write(describe(results, readings, seconds, stats))
    assert stats.lost.get("killed", 0) > 0
    assert max(readings.containers) <= 2 * OPTIONS.stock
    half = len(readings.descriptors) // 2
    assert max(readings.descriptors[half:]) <= max(readings.descriptors[:half]) + 8
    assert max(readings.megabytes[half:]) <= 1.2 * max(readings.megabytes[:half]) + 20


def describe(
    results: Sequence[tuple[ExecResult, int]], readings: Sizes, seconds: float, stats: PoolStats
) -> str:
    tries = Counter(one for _, one in results)
    sizes = {
        "containers": readings.containers,
        "file descriptors": readings.descriptors,
        "resident MB": readings.megabytes,
    }
    return "\n".join(
        [
            f"\n{len(results)} verdicts in {seconds:.0f} s, all right",
            f"not judged before that, by times: {dict(sorted(tries.items()))}",
            f"runs by status: {stats.runs}",
            f"tries lost: {stats.lost}; containers retired: {stats.retired}",
            f"containers started: {stats.launched}; outages: {stats.outages}",
            *(
                f"{name}: first {values[0]:.0f}, last {values[-1]:.0f}, most {max(values):.0f}"
                for name, values in sizes.items()
            ),
            "",
        ]
    )
