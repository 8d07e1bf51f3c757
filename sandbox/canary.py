"""Programs that must fail: the proof, at start, that the limits are enforced on this machine."""

from __future__ import annotations

from dataclasses import dataclass

from sandbox.errors import Cause, SandboxUnavailable, WorkerLost
from sandbox.limits import Limits
from sandbox.options import SandboxOptions
from sandbox.result import ExecResult, ExecStatus, Job
from sandbox.runner import Runner

_RIGHTS = """
import os, socket

def allowed(act):
    try:
        act()
    except (OSError, ImportError):
        return False
    return True

def processes():
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if pid != os.getpid()]

if allowed(lambda: socket.socket()):
    print("network sockets")
if allowed(lambda: socket.socket(type=socket.SOCK_DGRAM).connect(("192.0.2.1", 9))):
    print("a network")
for place in ("/", "/tmp", "/dev", "/dev/shm", "/dev/mqueue", "/var", "/usr"):
    if allowed(lambda: open(place + "/canary", "w").write("x")):
        print("writing below", place)
for pid in processes():
    if allowed(lambda: os.kill(pid, 0)):
        print("signals to process", pid)
    for name in ("environ", "mem", "maps"):
        if allowed(lambda: open(f"/proc/{pid}/{name}", "rb").read(1)):
            print("reading", name, "of process", pid)
if allowed(lambda: os.setuid(0)):
    print("becoming root")
print("done")
"""

_FORKS = """
import os, time
forks = 0
try:
    while forks < 200:
        if os.fork() == 0:
            time.sleep(60)
        forks += 1
except OSError:
    pass
print(forks)
"""

_MEMORY = """
block = bytearray({megabytes} << 20)
for place in range(0, len(block), 4096):
    block[place] = 1
print("held")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryReport:
    """What one canary found.

    Attributes:
        name: What was tried.
        problem: What should not have been possible; empty when all is well.
    """

    name: str
    problem: str


def run_canaries(worker: Runner, options: SandboxOptions) -> tuple[CanaryReport, ...]:
    """Try what no program may do; the container is spent afterwards.

    Args:
        worker: A container with nothing else to do.
        options: What it was started with.
    """
    limits = options.limits
    rights = _run(worker, _RIGHTS, limits)
    forks = _run(worker, _FORKS, limits)
    memory = _memory_problem(worker, limits)
    return (
        CanaryReport(name="rights", problem=_rights_problem(rights, _tolerated(options))),
        CanaryReport(name="processes", problem=_forks_problem(forks, limits)),
        CanaryReport(name="memory", problem=memory),
    )


def require(reports: tuple[CanaryReport, ...]) -> None:
    """Refuse a sandbox in which a canary did something that it must not be able to do.

    Raises:
        SandboxUnavailable: At least one has found a problem.
    """
    problems = [f"{report.name}: {report.problem}" for report in reports if report.problem]
    if problems:
        raise SandboxUnavailable(
            Cause.LIMIT_NOT_ENFORCED,
            "The Docker engine starts containers but does not enforce the sandbox's limits, so "
            f"nothing is run in them. {'; '.join(problems)}. Look at the warnings of `docker info` "
            "(a rootless engine needs cgroup delegation for memory and process limits; gVisor needs"
            " isolation: container_per_candidate), then try again: verigrad sandbox check",
        )


def _run(worker: Runner, program: str, limits: Limits) -> ExecResult:
    return worker.run(Job(program=program, inputs=(b"",), limits=limits))[0]


def _tolerated(options: SandboxOptions) -> tuple[str, ...]:
    """Beginnings of what does no harm where no second program will ever run."""
    if options.isolation != "container_per_candidate":
        return ()
    # The supervisor, which a program may end, to be judged for it, and an init process that holds
    # nothing.
    own = ("signals to ", "reading environ of process 1", "reading m")
    if options.runtime != "runsc":
        return own
    # The kernel that grants this is gVisor's, and ends with the container.
    return (*own, "network sockets", "writing below /tmp", "reading environ")


def _rights_problem(result: ExecResult, tolerated: tuple[str, ...]) -> str:
    lines = result.stdout.decode("utf-8", "replace").split("\n")
    if result.status is not ExecStatus.OK or "done" not in lines:
        return f"the program ended with {result.status} ({result.detail})"
    problems = [line for line in lines if line not in ("", "done")]
    return ", ".join(line for line in problems if not line.startswith(tolerated))


def _forks_problem(result: ExecResult, limits: Limits) -> str:
    text = result.stdout.decode("utf-8", "replace").strip()
    if result.status is not ExecStatus.OK or not text.isdigit():
        return f"the program ended with {result.status} ({result.detail})"
    return "" if int(text) <= limits.processes else f"{text} processes could be started"


def _memory_problem(worker: Runner, limits: Limits) -> str:
    # More than the container may hold, and less than the address space that the program may map.
    megabytes = limits.memory_mb + 128
    try:
        memory = _run(worker, _MEMORY.format(megabytes=megabytes), limits)
    except WorkerLost as error:
        if error.kind == "died":
            return ""  # gVisor's whole kernel is what the limit ends
        raise
    if memory.status is ExecStatus.MLE:
        return ""
    return f"a program that uses {megabytes} MB ended with {memory.status}"
