"""One pool of containers for everybody on a machine, and none left when the run is interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing

import psutil
import ray

from sandbox.engine import Engine
from sandbox.owner import LABEL, Owner
from verifiers.fleet import VerifierFleet
from verifiers.problem import Problem, Submission
from verifiers.verdict import Status

SUBMISSIONS = 200
POOL_SIZE = 2
TESTS = [{"kind": "function", "entry_point": "f", "args": [2], "expected": 3}]
CROWD = """
import threading
from sandbox.backends import open_pool
from sandbox.options import SandboxOptions
from sandbox.result import Job
pool = open_pool(SandboxOptions(pool_size=2))
try:
    job = Job(program="import time; time.sleep(3)", inputs=(b"",) * 50)
    threading.Thread(target=pool.run, args=(job,), daemon=True).start()
    print("up", flush=True)
    pool.run(job)
finally:
    pool.close()
"""


def containers_since(before: set[str]) -> list[Owner | None]:
    with closing(Engine()) as engine:
        listed = engine.list_labelled(LABEL)
    return [Owner.from_labels(one.labels) for one in listed if one.id not in before]


def all_containers() -> set[str]:
    with closing(Engine()) as engine:
        return {one.id for one in engine.list_labelled(LABEL)}


def submission(number: int) -> Submission:
    right = number % 3 != 0
    return Submission(
        problem=Problem(
            id=str(number), prompt="", verifier="code", reference=TESTS, source=f"test:{number}"
        ),
        completion=f"```python\ndef f(x): return x + {int(right)}\n```",
    )


def test_two_hundred_submissions_share_one_pool() -> None:
    before = all_containers()
    owners: list[set[int]] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.2):
            # Containers of other runs on this machine come and go too; ours are children of Ray's.
            owners.append({one.pid for one in containers_since(before) if one and is_ours(one.pid)})

    ray.init(address="local", num_cpus=2, include_dashboard=False, object_store_memory=200_000_000)
    try:
        fleet = VerifierFleet(
            specs={"code": {"pool_size": POOL_SIZE}},
            num_workers=2,
            max_in_flight=SUBMISSIONS,
            node_threads=2 * POOL_SIZE,
        )
        fleet.start()
        fleet.wait_ready()
        watcher = threading.Thread(target=watch)
        watcher.start()
        for number in range(SUBMISSIONS):
            fleet.submit(number, submission(number))
        verdicts = {}
        give_up = time.monotonic() + 300
        while len(verdicts) < SUBMISSIONS and time.monotonic() < give_up:
            verdicts |= dict(fleet.finished(timeout_s=5.0))
        stop.set()
        watcher.join()
        fleet.close()
    finally:
        ray.shutdown()
    assert {number for number, one in verdicts.items() if one.status is Status.CORRECT} == {
        number for number in range(SUBMISSIONS) if number % 3 != 0
    }
    assert {one.status for one in verdicts.values()} == {Status.CORRECT, Status.INCORRECT}
    assert max(map(len, owners)) == 1  # one process owns all containers


def is_ours(pid: int) -> bool:
    """Whether a process is an actor of the Ray that this test has started."""
    try:
        return os.getpid() in {one.pid for one in psutil.Process(pid).parents()}
    except psutil.NoSuchProcess:
        return False


def test_an_interrupt_leaves_no_container() -> None:
    with subprocess.Popen([sys.executable, "-c", CROWD], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        time.sleep(1.0)
        child.send_signal(signal.SIGINT)
        assert child.wait(60) != 0
    with closing(Engine()) as engine:
        left = [
            one.id
            for one in engine.list_labelled(LABEL)
            if one.labels.get(f"{LABEL}.pid") == str(child.pid)
        ]
    assert left == []
