"""The conversation with one supervisor: jobs out, results in."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Sequence
from typing import Any, Protocol

from sandbox.bundle import modules
from sandbox.classify import classify_calls, classify_inputs
from sandbox.container.isolation import Mode
from sandbox.container.values import encode
from sandbox.container.watch import MAX_STRETCH
from sandbox.dialogue import WorkerDialogue
from sandbox.errors import WorkerLost
from sandbox.options import SandboxOptions
from sandbox.result import (
    Call,
    ExecResult,
    ExecStatus,
    Flag,
    InfraCause,
    Job,
    infra_result,
)  # fmt: skip
from sandbox.stream import FrameStream

START_TIMEOUT_S = 60.0
_OTHER_SIDE = "the container on the other side of a conversation was lost"
ANSWER_SLACK_S = 20.0

ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",  # the same program must get the same verdict twice
    "PYTHONUTF8": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONINTMAXSTRDIGITS": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",  # each arena reserves 64 MB of address space for a thread
}


class Home(Protocol):
    """What a supervisor runs in; a container is one."""

    def remove(self) -> None:
        """End it and everything in it; it may be gone already."""
        ...

    def cause_of_death(self) -> str:
        """The kind of `WorkerLost` that its unexpected end is."""
        ...


class Worker:
    """A supervisor that runs one job at a time.

    Args:
        stream: The way to it.
        home: What it runs in.
        mode: What keeps its programs apart.
    """

    def __init__(self, stream: FrameStream, home: Home, mode: Mode) -> None:
        self._stream = stream
        self._home = home
        self._mode = mode
        self._heavy: tuple[str, ...] = ()
        self._jobs = 0
        self.runs = 0
        self.born = time.monotonic()
        self.tainted: str | None = None
        self.missing_modules: tuple[str, ...] = ()

    def greet(
        self, options: SandboxOptions, *, first_uid: int, alone: bool, own_cgroup: bool
    ) -> None:
        """Send the supervisor its source and its settings, and wait until it can take a job.

        Args:
            options: What to load ahead.
            first_uid: The first of the uids that are its own.
            alone: Whether it sees no processes but its own.
            own_cgroup: Whether the control group that it sees is its own.

        Raises:
            WorkerLost: It ended or went silent before it was ready.
        """
        self._stream.send(modules(for_tests=options.for_tests), timeout_s=START_TIMEOUT_S)
        config = {
            "mode": self._mode,
            "first_uid": first_uid,
            "alone": alone,
            "own_cgroup": own_cgroup,
            "preload": options.preload,
            "preload_heavy": options.preload_heavy,
        }
        self._stream.send(config, timeout_s=START_TIMEOUT_S)
        ready = self._stream.receive(timeout_s=START_TIMEOUT_S)
        self.missing_modules = tuple(ready["missing"])
        self._heavy = options.preload_heavy

    def alive(self) -> bool:
        """Whether it is still there, as far as can be seen between jobs."""
        return self._stream.quiet

    def run(self, job: Job) -> tuple[ExecResult, ...]:
        """Run a job.

        Raises:
            WorkerLost: It is gone or does not answer as it must, and is of no further use.
        """
        try:
            runs, trouble = self._exchange(job)
        except WorkerLost as error:
            if error.kind != "died":
                raise
            raise WorkerLost(self._home.cause_of_death(), str(error)) from error
        try:
            if job.calls:
                results = classify_calls(runs, len(job.calls), job.limits)
            else:
                results = classify_inputs(runs, job.limits)
        except (KeyError, TypeError, ValueError) as error:
            raise WorkerLost("protocol", f"a malformed answer: {error!r}") from error
        self.runs += len(runs)
        single_use = "single use" if self._mode is Mode.SAME_USER else None
        self.tainted = _taint(results) or single_use
        return results if trouble is None else (infra_result(trouble, _OTHER_SIDE),)

    def close(self) -> None:
        """Remove it and what it runs in."""
        self._home.remove()
        self._stream.close()

    def _exchange(self, job: Job) -> tuple[Sequence[Any], InfraCause | None]:
        """What was seen of each run, and why that says nothing, if so."""
        self._jobs += 1
        stamp = {"seq": self._jobs, "nonce": secrets.token_hex(8)}
        # A name that only looks like an import costs a few milliseconds, and nothing else.
        sources = [job.program, *map(str, (job.test or {}).values())]
        heavy = any(name in text for text in sources for name in self._heavy)
        message = {**stamp, **_job_json(job), "heavy": heavy}
        timeout_s = (1 + MAX_STRETCH) * job.limits.wall * job.num_runs + ANSWER_SLACK_S
        self._stream.send(message, timeout_s=timeout_s)
        try:
            if job.converse is not None:
                dialogue = WorkerDialogue(self._stream, stamp, timeout_s)
                trouble = job.converse(dialogue)
                return dialogue.close()["runs"], trouble
            answer = self._stream.receive(timeout_s=timeout_s)
            if any(answer[key] != stamp[key] for key in stamp):
                raise WorkerLost("protocol", "the answer is to another job")
            return answer["runs"], None
        except (KeyError, TypeError) as error:
            raise WorkerLost("protocol", f"a malformed answer: {error!r}") from error


def _job_json(job: Job) -> dict[str, Any]:
    return {
        "kind": "talk" if job.converse else "calls" if job.calls else "inputs",
        "program": job.program,
        "test": job.test,
        "files": [base64.b64encode(one).decode("ascii") for one in job.files],
        "inputs": [base64.b64encode(one).decode("ascii") for one in job.inputs],
        "calls": [_call_json(one) for one in job.calls],
        "limits": job.limits.as_json(),
        "stop_early": job.stop_early,
    }


def _call_json(call: Call) -> list[Any]:
    keywords = {key: encode(value) for key, value in call.keywords.items()}
    return [call.function, [encode(one) for one in call.arguments], keywords]


def _taint(results: Sequence[ExecResult]) -> str | None:
    """Why the supervisor must not run another program."""
    for result in results:
        if result.status in (ExecStatus.MLE, ExecStatus.OLE, ExecStatus.IE):
            return str(result.status)
        if Flag.SV in result.flags:
            return "leftover processes"
        if result.killed and result.status is not ExecStatus.TLE:
            return "killed by a signal"
        if result.status is ExecStatus.TLE and "wall" in result.detail:
            return "wall time"
    return None
