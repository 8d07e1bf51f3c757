"""One Docker container with a supervisor in it."""

from __future__ import annotations

import contextlib
import json
import random
import threading
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

from sandbox.bundle import COMMAND
from sandbox.container.isolation import Mode
from sandbox.engine import ENGINE_ERRORS, ContainerSpec, Engine
from sandbox.errors import WorkerLost
from sandbox.options import SandboxOptions
from sandbox.owner import LABEL, Owner
from sandbox.stream import FrameStream
from sandbox.worker import ENVIRONMENT, Worker

# RLIMIT_NPROC counts a uid's processes over the whole host, so no two containers may share one.
# Below 65536: engines that map users into a namespace offer no more.
FIRST_UID: Final = 20_000
UIDS_PER_CONTAINER: Final = 100
NUM_UID_RANGES: Final = 450
MAX_PROCESSES: Final = 64
# gVisor's kernel is a process of the container, and has threads and helpers of its own.
_GVISOR_THREADS: Final = 448
_UID_LABEL = f"{LABEL}.uid"

_MODES = {
    "uid": Mode.UID,
    "namespace": Mode.NAMESPACE,
    "container_per_candidate": Mode.SAME_USER,
}
# What the supervisor needs to give each program a user of its own.
_CAPABILITIES = ("SETUID", "SETGID", "KILL")
# What the program's own first steps need in order to enter namespaces; they give it up after that.
_NAMESPACE_CALLS = ("capset", "mount", "unshare")


@dataclass(frozen=True, slots=True)
class Container:
    """A container; a `sandbox.worker.Home`."""

    engine: Engine
    id: str

    def remove(self) -> None:
        """Remove it."""
        # Where the engine is away: the supervisor ends with its stream, and its container is
        # removed by that.
        with contextlib.suppress(*ENGINE_ERRORS):
            self.engine.remove(self.id)

    def cause_of_death(self) -> str:
        """`killed` by somebody who asked the engine to, gone with the `engine`, or `died`."""
        try:
            return "killed" if self.engine.was_killed(self.id) else "died"
        except ENGINE_ERRORS:
            return "engine"


def start_container(
    engine: Engine, options: SandboxOptions, create_lock: threading.Lock | None = None
) -> Worker:
    """Start a container and wait until it can take a job.

    Args:
        engine: Where to start it.
        options: Its settings.
        create_lock: Held while a uid range is chosen, so that two threads do not choose the same.

    Raises:
        WorkerLost: The engine did not start it, or it ended or went silent before it was ready.
    """
    try:
        with create_lock or contextlib.nullcontext():
            first_uid = _free_uid(engine)
            container = Container(engine, engine.create(_spec(options, first_uid)))
        return _start_created(container, options, first_uid)
    except ENGINE_ERRORS as error:
        raise WorkerLost("engine", f"the engine did not start a container: {error}") from error


def _start_created(container: Container, options: SandboxOptions, first_uid: int) -> Worker:
    with contextlib.ExitStack() as undo:
        undo.callback(container.remove)
        stream = FrameStream(container.engine.attach(container.id), multiplexed=True)
        undo.callback(stream.close)
        container.engine.start(container.id)
        worker = Worker(stream, container, _MODES[options.isolation])
        worker.greet(options, first_uid=first_uid, alone=True, own_cgroup=True)
        undo.pop_all()
    return worker


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
    user = f"{first_uid}:{first_uid}" if options.isolation == "container_per_candidate" else "0:0"
    return ContainerSpec(
        image=options.image,
        command=COMMAND,
        environment=ENVIRONMENT,
        labels=labels,
        user=user,
        host_config=_host_config(options),
    )


def _host_config(options: SandboxOptions) -> dict[str, Any]:
    # The zygote with its libraries lives in the same memory group as the program.
    memory = (options.limits.memory_mb + 64) << 20
    capabilities = () if options.isolation == "container_per_candidate" else _CAPABILITIES
    config: dict[str, Any] = {
        "network_mode": "none",
        "ipc_mode": "none",
        "read_only": True,
        "cap_drop": ["ALL"],
        "cap_add": list(capabilities),
        "security_opt": ["no-new-privileges", f"seccomp={json.dumps(_seccomp(options))}"],
        "pids_limit": MAX_PROCESSES + (_GVISOR_THREADS if options.runtime == "runsc" else 0),
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


def _seccomp(options: SandboxOptions) -> dict[str, Any]:
    profile = json.loads(resources.files("sandbox").joinpath("seccomp.json").read_text("utf-8"))
    if options.isolation == "namespace":
        granted = {"names": list(_NAMESPACE_CALLS), "action": "SCMP_ACT_ALLOW"}
        profile["syscalls"].append(granted)
    return profile
