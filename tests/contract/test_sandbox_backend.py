"""What every backend that runs jobs must do; written against `sandbox.pool.Runner`."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from contextlib import closing

import pytest

from sandbox.backends import check_backend
from sandbox.docker_pool import check_sandbox, start_worker
from sandbox.engine import Engine
from sandbox.errors import WorkerLost
from sandbox.limits import Limits
from sandbox.options import SandboxOptions
from sandbox.result import Call, ExecStatus, Job
from sandbox.runner import Runner
from sandbox.unsafe import start_process
from tests.engines import GVISOR, OwnEngine

pytestmark = pytest.mark.integration
LIMITS = Limits(cpu_s=2.0)


BACKENDS = {
    "docker-uid": {},
    "docker-namespace": {"isolation": "namespace"},
    "docker-container_per_candidate": {"isolation": "container_per_candidate"},
    "bubblewrap": {"backend": "bubblewrap", "allow_unsafe_backend": True},
    "subprocess": {"backend": "subprocess", "allow_unsafe_backend": True},
}
# On an engine of its own, so that the machine's need not know it; a second and more a container.
GVISOR_BACKEND = pytest.param(
    {"isolation": "container_per_candidate", "runtime": "runsc"},
    id="docker-runsc",
    marks=pytest.mark.long,
)


class Starter:
    """Starts runners of one backend, as few as will do."""

    def __init__(self, options: SandboxOptions, engine: Engine) -> None:
        self.options = options
        self.engine = engine
        self.current: Runner | None = None

    def get(self) -> Runner:
        if self.current is None or self.current.tainted not in (None, "single use"):
            self.close()
            if self.options.backend == "docker":
                self.current = start_worker(self.engine, self.options)
            else:
                self.current = start_process(self.options)
        return self.current

    def close(self) -> None:
        if self.current is not None:
            self.current.close()
            self.current = None


@pytest.fixture(
    scope="module",
    params=[*(pytest.param(one, id=name) for name, one in BACKENDS.items()), GVISOR_BACKEND],
)
def starter(request, tmp_path_factory) -> Iterator[Starter]:
    options = SandboxOptions(limits=LIMITS, **request.param)
    with contextlib.ExitStack() as stack:
        if options.runtime == "runsc":
            if shutil.which("runsc") is None:
                pytest.skip("gVisor is not installed: apt-get install runsc")
            own = stack.enter_context(OwnEngine(tmp_path_factory.mktemp("engine"), GVISOR))
            own.load_image()
            stack.enter_context(pytest.MonkeyPatch.context()).setenv("DOCKER_HOST", own.url)
        if options.backend == "bubblewrap" and shutil.which("bwrap") is None:
            pytest.skip("bubblewrap is not installed: apt-get install bubblewrap")
        check_backend(options)
        engine = stack.enter_context(closing(Engine()))
        if options.backend == "docker":
            check_sandbox(engine, options)  # what its canaries must not be able to do
        yield stack.enter_context(closing(Starter(options, engine)))


@pytest.fixture
def runner(starter) -> Runner:
    return starter.get()


def statuses(results):
    return [str(one.status) for one in results]


def test_inputs_are_run_in_order_each_in_its_own_process(runner):
    program = "x = input(); print(x, 'seen' in globals()); seen = 1"
    results = runner.run(Job(program=program, inputs=(b"a", b"b"), limits=LIMITS))
    assert [one.stdout for one in results] == [b"a False\n", b"b False\n"]


def test_bytes_come_back_as_they_were_written(runner):
    program = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])"
    data = bytes(range(256)) * 1000
    (result,) = runner.run(Job(program=program, inputs=(data,), limits=LIMITS))
    assert result.stdout == data[::-1]


def test_large_input_that_is_never_read_does_no_harm(runner):
    (result,) = runner.run(Job(program="print(42)", inputs=(b"x" * 3_000_000,), limits=LIMITS))
    assert result.stdout == b"42\n"


def test_calls_return_exact_values(runner):
    program = "def f(x): return x\ndef g(a, *, b): return (a, {b: [None, 1.5]})"
    values = (1, True, "ü\udc80", (1, [2]), {1: {2}}, 10**50, b"\0", float("inf"))
    calls = tuple(Call(function="f", arguments=(value,)) for value in values)
    calls += (Call(function="g", arguments=(1,), keywords={"b": "k"}),)
    results = runner.run(Job(program=program, calls=calls, limits=LIMITS))
    assert [one.value for one in results] == [*values, (1, {"k": [None, 1.5]})]
    assert [type(one.value) for one in results[:-1]] == [type(value) for value in values]


def test_methods_of_a_solution_class_are_found(runner):
    program = "class Solution:\n  def twice(self, x): return 2 * x"
    (result,) = runner.run(Job(program=program, calls=(Call(function="twice", arguments=(4,)),)))
    assert result.value == 8


def test_a_bad_call_costs_only_itself(runner):
    program = """
import os, sys
def f(x):
    if x == 1: raise ValueError("no")
    if x == 2: os._exit(0)
    if x == 3: sys.exit(0)
    if x == 4: bytearray(1 << 40)
    if x == 5: os.kill(os.getpid(), 11)
    if x == 6:
        while True: pass
    return x
"""
    calls = tuple(Call(function="f", arguments=(x,)) for x in range(8))
    results = runner.run(Job(program=program, calls=calls, limits=Limits(cpu_s=0.5)))
    assert statuses(results) == ["OK", "RE", "RE", "RE", "MLE", "RE", "TLE", "OK"]


def test_the_time_limit_is_of_each_call(runner):
    program = """
import time
def f(x):
    end = time.process_time() + x
    while time.process_time() < end: pass
"""
    calls = tuple(Call(function="f", arguments=(x,)) for x in (0.2, 0.2, 0.2, 0.2, 9.0))
    results = runner.run(Job(program=program, calls=calls, limits=Limits(cpu_s=0.5)))
    assert statuses(results) == ["OK"] * 4 + ["TLE"]


def test_stopping_early_leaves_the_rest_out(runner):
    program = "assert input() == 'a'"
    job = Job(program=program, inputs=(b"a", b"b", b"a"), stop_early=True)
    assert statuses(runner.run(job)) == ["OK", "RE"]


@pytest.mark.parametrize(
    ("program", "status"), [("1 +", "CE"), ("1 / 0", "RE"), ("def g(): pass", "RE")]
)
def test_calls_of_a_program_that_offers_nothing(runner, program, status):
    results = runner.run(Job(program=program, calls=(Call(function="f"),) * 2))
    assert statuses(results) == [status] * 2


@pytest.mark.parametrize(
    ("program", "statuses_allowed"),
    [
        # Values of any size, depth or make, and values that only pretend to be one.
        ("def f():\n  x = []\n  for _ in range(10**5): x = [x]\n  return x", {"OK"}),
        ("def f(): return 'x' * (1 << 24)", {"OLE"}),
        ("def f(): return 10 ** 1000000", {"RE"}),
        ("def f(): x = []; x.append(x); return x", {"OK"}),
        ("import json\njson.dumps = lambda *a, **k: '[[['\ndef f(): return 1", {"RE"}),
        ("import os\nos.write(3, b'V\\0\\0\\0\\x013')\ndef f(): return 1", {"OK"}),
    ],
)
def test_hostile_values_leave_the_judge_alive(runner, program, statuses_allowed):
    (result,) = runner.run(Job(program=program, calls=(Call(function="f"),), limits=LIMITS))
    assert str(result.status) in statuses_allowed, result
    assert runner.run(Job(program="print(1)", inputs=(b"",)))[0].stdout == b"1\n"


def test_limits_are_of_each_job(runner):
    program = "print('x' * 5000)"
    tight = Job(program=program, inputs=(b"",), limits=Limits(stdout_kb=1))
    assert runner.run(tight)[0].status is ExecStatus.OLE
    assert runner.run(Job(program=program, inputs=(b"",)))[0].status is ExecStatus.OK


def test_costs_are_measured(runner):
    program = "x = bytearray(80 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1"
    (result,) = runner.run(Job(program=program, inputs=(b"",), limits=LIMITS))
    assert result.memory_mb > 80
    assert 0 < result.cpu_s <= result.wall_s + 0.05


def test_a_closed_runner_is_lost(starter):
    runner = starter.get()
    starter.close()
    with pytest.raises(WorkerLost):
        runner.run(Job(program="print(1)", inputs=(b"",)))
