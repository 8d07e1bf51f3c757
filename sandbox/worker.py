"""One warm container, and the conversation with its supervisor."""

from __future__ import annotations

import base64
import contextlib
import json
import random
import secrets
import threading
import time
from collections.abc import Sequence
from importlib import resources
from typing import Any, Final

from sandbox.bundle import COMMAND, modules
from sandbox.classify import classify_calls, classify_inputs
from sandbox.container.values import encode
from sandbox.container.watch import MAX_STRETCH
from sandbox.engine import ENGINE_ERRORS, ContainerSpec, Engine
from sandbox.errors import WorkerLost
from sandbox.options import SandboxOptions
from sandbox.owner import LABEL, Owner
from sandbox.result import Call, ExecResult, ExecStatus, Flag, Job
from sandbox.stream import FrameStream

START_TIMEOUT_S = 60.0
ANSWER_SLACK_S = 20.0
# RLIMIT_NPROC counts a uid's processes over the whole host, so no two containers may share one.
# Below 65536: engines that map users into a namespace offer no more.
FIRST_UID: Final = 20_000
UIDS_PER_CONTAINER: Final = 100
NUM_UID_RANGES: Final = 450
_UID_LABEL = f"{LABEL}.uid"

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


class Worker:
    """A container that runs one job at a time."""

    def __init__(
        self, engine: Engine, container_id: str, stream: FrameStream, heavy: tuple[str, ...]
    ) -> None:
        self._engine = engine
        self._heavy = heavy
        self.container_id = container_id
        self._stream = stream
        self._jobs = 0
        self.runs = 0
        self.born = time.monotonic()
        self.tainted: str | None = None
        self.missing_modules: tuple[str, ...] = ()

    @classmethod
    def start(cls, engine: Engine, options: SandboxOptions, create_lock: threading.Lock) -> Worker:
        """Start a container and wait until it can take a job.

        Args:
            engine: Where to start it.
            options: Its settings.
            create_lock: Held while a uid range is chosen, so that two threads do not choose the
                same.

        Raises:
            WorkerLost: The engine did not start it, or it ended or went silent before it was ready.
        """
        try:
            with create_lock:
                first_uid = _free_uid(engine)
                container_id = engine.create(_spec(options, first_uid))
            return cls._start_created(engine, container_id, options, first_uid)
        except ENGINE_ERRORS as error:
            raise WorkerLost("engine", f"the engine did not start a container: {error}") from error

    @classmethod
    def _start_created(
        cls, engine: Engine, container_id: str, options: SandboxOptions, first_uid: int
    ) -> Worker:
        with contextlib.ExitStack() as undo:
            undo.callback(engine.remove, container_id)
            stream = FrameStream(engine.attach(container_id))
            undo.callback(stream.close)
            worker = cls(engine, container_id, stream, options.preload_heavy)
            engine.start(container_id)
            stream.send(modules(), timeout_s=START_TIMEOUT_S)
            config = {
                "first_uid": first_uid,
                "preload": options.preload,
                "preload_heavy": options.preload_heavy,
            }
            stream.send(config, timeout_s=START_TIMEOUT_S)
            ready = stream.receive(timeout_s=START_TIMEOUT_S)
            worker.missing_modules = tuple(ready["missing"])
            undo.pop_all()
        return worker

    def alive(self) -> bool:
        """Whether its container is still there, as far as can be seen between jobs."""
        return self._stream.quiet

    def run(self, job: Job) -> tuple[ExecResult, ...]:
        """Run a job.

        Raises:
            WorkerLost: The container is gone or does not answer as it must; it is of no further
                use.
        """
        self._jobs += 1
        limits = job.limits
        stamp = {"seq": self._jobs, "nonce": secrets.token_hex(8)}
        # A name that only looks like an import costs a few milliseconds, and nothing else.
        heavy = any(name in job.program for name in self._heavy)
        message = {**stamp, **_job_json(job), "heavy": heavy}
        timeout_s = (1 + MAX_STRETCH) * limits.wall * job.num_runs + ANSWER_SLACK_S
        self._stream.send(message, timeout_s=timeout_s)
        answer = self._stream.receive(timeout_s=timeout_s)
        try:
            if any(answer[key] != stamp[key] for key in stamp):
                raise WorkerLost("protocol", "the answer is to another job")
            runs: Sequence[Any] = answer["runs"]
            if job.calls:
                results = classify_calls(runs, len(job.calls), limits)
            else:
                results = classify_inputs(runs, limits)
        except (KeyError, TypeError, ValueError) as error:
            raise WorkerLost("protocol", f"a malformed answer: {error!r}") from error
        self.runs += len(runs)
        self.tainted = _taint(results)
        return results

    def close(self) -> None:
        """Remove the container."""
        # Where the engine is away: the supervisor ends with its stream, and its container is
        # removed by that.
        with contextlib.suppress(*ENGINE_ERRORS):
            self._engine.remove(self.container_id)
        self._stream.close()


def _job_json(job: Job) -> dict[str, Any]:
    return {
        "kind": "calls" if job.calls else "inputs",
        "program": job.program,
        "inputs": [base64.b64encode(one).decode("ascii") for one in job.inputs],
        "calls": [_call_json(one) for one in job.calls],
        "limits": job.limits.as_json(),
        "stop_early": job.stop_early,
    }


def _call_json(call: Call) -> list[Any]:
    keywords = {key: encode(value) for key, value in call.keywords.items()}
    return [call.function, [encode(one) for one in call.arguments], keywords]


def _taint(results: Sequence[ExecResult]) -> str | None:
    """Why the container must not run another program."""
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


def _free_uid(engine: Engine) -> int:
    """The first uid of a range that no container on this machine uses."""
    used = {one.labels.get(_UID_LABEL) for one in engine.list_labelled(LABEL)}
    ranges = [FIRST_UID + UIDS_PER_CONTAINER * index for index in range(NUM_UID_RANGES)]
    free = [uid for uid in ranges if str(uid) not in used]
    if not free:
        raise WorkerLost("died", f"all {NUM_UID_RANGES} uid ranges are used by containers")
    # At random, because another process may be choosing at the same moment.
    return random.SystemRandom().choice(free)


def _spec(options: SandboxOptions, first_uid: int) -> ContainerSpec:
    labels = {**Owner.this_process().labels(), _UID_LABEL: str(first_uid)}
    return ContainerSpec(
        image=options.image,
        command=COMMAND,
        environment=ENVIRONMENT,
        labels=labels,
        host_config=_host_config(options),
    )


def _host_config(options: SandboxOptions) -> dict[str, Any]:
    # The zygote with its libraries lives in the same memory group as the program.
    memory = (options.limits.memory_mb + 64) << 20
    profile = json.loads(resources.files("sandbox").joinpath("seccomp.json").read_text("utf-8"))
    config: dict[str, Any] = {
        "network_mode": "none",
        "ipc_mode": "none",
        "read_only": True,
        "cap_drop": ["ALL"],
        "cap_add": ["SETUID", "SETGID", "KILL"],
        "security_opt": ["no-new-privileges", f"seccomp={json.dumps(profile)}"],
        "pids_limit": 64,
        "mem_limit": memory,
        "memswap_limit": memory,
        "nano_cpus": 1_000_000_000,
        "init": True,
        "auto_remove": True,
        "ulimits": [
            {"Name": "nofile", "Soft": 64, "Hard": 64},
            {"Name": "core", "Soft": 0, "Hard": 0},
            {"Name": "stack", "Soft": 64 << 20, "Hard": 64 << 20},
            {"Name": "memlock", "Soft": 0, "Hard": 0},
        ],
        "log_config": {"Type": "none", "Config": {}},
    }
    if options.runtime is not None:
        config["runtime"] = options.runtime
    return config
