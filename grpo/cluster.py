"""The Ray that a run works on: one started on this machine, or a cluster that is there."""

from __future__ import annotations

import logging
import socket

import ray

from grpo.config.sections import RayConfig
from verifiers.errors import UserError

_ANSWER_TIMEOUT_S = 10.0


def start_ray(config: RayConfig) -> None:
    """Connect to the configured cluster, or start Ray on this machine.

    Raises:
        UserError: The cluster does not answer.
    """
    if config.address is not None:
        try:
            _knock(config.address)
            ray.init(address=config.address, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, RuntimeError, ValueError) as error:
            raise UserError(
                f"The Ray cluster ray.address={config.address!r} does not answer: {error}. Start "
                "it with `ray start --head`, or leave ray.address out to use this machine alone. "
                "A cluster that asks for a token wants RAY_AUTH_MODE=token set here too."
            ) from error
        return
    try:
        ray.init(
            address="local",
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=config.object_store_mb * 2**20,
        )
    except Exception as error:
        # Ray raises a bare Exception where its own processes are not up in time.
        raise UserError(
            f"Ray could not start on this machine: {str(error).rstrip('.')}. Usual causes are a "
            f"full disk, too little shared memory for ray.object_store_mb={config.object_store_mb},"
            " blocked local ports, and a machine that is very busy; Ray's own log is in its "
            "temporary folder (RAY_TMPDIR)."
        ) from error


def _knock(address: str) -> None:
    """See that somebody listens at an address; Ray itself would try for minutes.

    Raises:
        OSError: Nobody does.
    """
    host, separator, port = address.removeprefix("ray://").rpartition(":")
    if separator and port.isdigit():
        socket.create_connection((host, int(port)), timeout=_ANSWER_TIMEOUT_S).close()


def stop_ray() -> None:
    """Leave the cluster; a Ray that was started here ends with its processes."""
    ray.shutdown()
