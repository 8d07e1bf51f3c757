"""A pool on Docker, opened with every check that can be made before the first program."""

from __future__ import annotations

import logging
import threading
from contextlib import closing

from sandbox.canary import CanaryReport, require, run_canaries
from sandbox.containers import start_container
from sandbox.engine import ENGINE_ERRORS, Engine
from sandbox.errors import Cause, SandboxUnavailable, WorkerLost
from sandbox.image import missing_image
from sandbox.options import SandboxOptions
from sandbox.owner import LABEL, Owner
from sandbox.pool import SandboxPool
from sandbox.worker import Worker

REAP_EVERY_S = 60.0

logger = logging.getLogger(__name__)


def open_docker_pool(options: SandboxOptions) -> SandboxPool:
    """Check the engine, clear away what dead runs left, prove the limits, start the containers.

    Raises:
        SandboxUnavailable: No program can be run safely here; the message says what to do.
    """
    engine = Engine()
    try:
        check_sandbox(engine, options)
    except BaseException:
        engine.close()
        raise
    stop = threading.Event()
    reaper = threading.Thread(
        target=_reap_now_and_then, args=(engine, stop), name="sandbox-reaper", daemon=True
    )
    reaper.start()
    create_lock = threading.Lock()

    def close() -> None:
        stop.set()
        reaper.join()
        engine.close()

    return SandboxPool(
        lambda: start_container(engine, options, create_lock), options, on_close=close
    )


def check_engine(engine: Engine, options: SandboxOptions) -> None:
    """What can be known without starting a container, in milliseconds.

    Raises:
        SandboxUnavailable: The runtime is not registered, or the image is missing.
    """
    if options.runtime is not None and options.runtime not in engine.runtimes():
        raise SandboxUnavailable(
            Cause.NO_RUNTIME,
            f"The Docker engine knows no runtime {options.runtime}, only "
            f"{', '.join(engine.runtimes())}. Register it in /etc/docker/daemon.json and restart "
            "the engine (for gVisor: sudo runsc install), or leave `runtime` out.",
        )
    if not engine.has_image(options.image):
        raise missing_image(options.image)


def check_sandbox(engine: Engine, options: SandboxOptions) -> tuple[CanaryReport, ...]:
    """Everything that must hold before a program is run.

    Raises:
        SandboxUnavailable: Something does not hold; the message says what to do.
    """
    check_engine(engine, options)
    reap(engine)
    with closing(start_worker(engine, options)) as worker:
        reports = run_canaries(worker, options)
    require(reports)
    return reports


def start_worker(engine: Engine, options: SandboxOptions) -> Worker:
    """Start one container, for a caller that has no use for a pool.

    Raises:
        SandboxUnavailable: It does not start, or does not answer.
    """
    try:
        return start_container(engine, options)
    except WorkerLost as error:
        raise _start_failed(options, error) from error


def _start_failed(options: SandboxOptions, error: WorkerLost) -> SandboxUnavailable:
    if "no space left on device" in str(error):
        return SandboxUnavailable(
            Cause.NO_SPACE,
            f"The disk of the Docker engine is full, so no container starts ({error}). Make room: "
            "docker system df shows what takes it, docker system prune removes what is unused.",
        )
    return SandboxUnavailable(
        Cause.START_FAILED,
        f"A container of {options.image} does not start or does not answer: {error} Try it by "
        f"hand: docker run --rm {options.image} python3 -c 'print(1)'; it needs Python 3.11 or "
        "newer.",
    )


def reap(engine: Engine) -> int:
    """Remove containers whose process is dead; returns how many.

    A container goes by itself when its judge dies, so this finds something only after a crash of
    the engine or the machine. Containers of processes on other machines, and of processes that
    live, are never touched.
    """
    removed = 0
    for container in engine.list_labelled(LABEL):
        owner = Owner.from_labels(container.labels)
        if owner is not None and owner.gone():
            engine.remove(container.id)
            removed += 1
    if removed:
        logger.warning("removed %d containers that dead runs had left", removed)
    return removed


def _reap_now_and_then(engine: Engine, stop: threading.Event) -> None:
    while not stop.wait(REAP_EVERY_S):
        try:
            reap(engine)
        except ENGINE_ERRORS as error:
            logger.warning("could not look for left-over containers: %s", error)
