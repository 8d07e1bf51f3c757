"""What can run a job: the container behind it is somebody else's business."""

from __future__ import annotations

from typing import Protocol

from sandbox.errors import WorkerLost
from sandbox.result import ExecResult, Job

# What a runner must be able to do before it is trusted after trouble.
PROBE = Job(program="print(6 * 7)", inputs=(b"",))
PROBE_OUTPUT = b"42\n"


class Runner(Protocol):
    """A container that runs one job at a time; `sandbox.worker.Worker` is one."""

    runs: int
    born: float
    tainted: str | None

    def run(self, job: Job) -> tuple[ExecResult, ...]:
        """Run a job, or raise `WorkerLost`."""
        ...

    def alive(self) -> bool:
        """Whether it can take a job, as far as is known; asked between jobs."""
        ...

    def close(self) -> None:
        """Remove it; safe while another thread is in `run`, which then raises `WorkerLost`."""
        ...


def prove(runner: Runner) -> None:
    """Have a runner do a job whose outcome is known.

    Raises:
        WorkerLost: It does not do it right, and has been closed.
    """
    try:
        _do_probe(runner)
    except WorkerLost:
        runner.close()
        raise


def _do_probe(runner: Runner) -> None:
    (result,) = runner.run(PROBE)
    if result.stdout != PROBE_OUTPUT:
        raise WorkerLost("protocol", f"a trial program ended with {result.status}")
