"""The way into the sandbox: from its options to a pool that runs programs."""

from __future__ import annotations

import logging
from contextlib import closing

from sandbox.docker_pool import check_engine, open_docker_pool
from sandbox.engine import Engine
from sandbox.options import SandboxOptions
from sandbox.pool import SandboxPool
from sandbox.unsafe import check_unsafe, start_process

logger = logging.getLogger(__name__)


def open_pool(options: SandboxOptions) -> SandboxPool:
    """Check what there is to check, and start whatever programs will run in.

    Raises:
        SandboxUnavailable: No program can be run so on this machine; the message says what to do.
    """
    if options.backend == "docker":
        return open_docker_pool(options)
    check_unsafe(options)
    logger.warning(
        "model-written code runs under the backend %s, which hostile programs can break out of, "
        "because allow_unsafe_backend is set",
        options.backend,
    )
    return SandboxPool(lambda: start_process(options), options)


def check_backend(options: SandboxOptions) -> None:
    """What can be known without starting anything, in milliseconds.

    Raises:
        SandboxUnavailable: The engine, the runtime, the image or the command is missing.
    """
    if options.backend != "docker":
        check_unsafe(options)
        return
    with closing(Engine()) as engine:
        check_engine(engine, options)
