"""The Ray that a run works on: one started on this machine, or a cluster that is there."""

from __future__ import annotations

import logging
import socket
from typing import Any

import ray

from grpo.config.sections import RayConfig
from grpo.placement import list_nodes
from grpo.rollout.options import Device
from grpo.rollout.vllm_version import find_build
from verifiers.errors import UserError

_ANSWER_TIMEOUT_S = 10.0
# What Ray calls a node's kind of GPU, before its name.
_ACCELERATOR = "accelerator_type:"


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


def find_cluster_device() -> Device:
    """What a run on the cluster computes on: GPUs, where any living node offers one.

    Where none does, but the vLLM that is installed is the build for GPUs, their nodes have yet to
    join: the run is planned for them all the same, and waits for them or says that there are none.
    """
    offered = any(node.get("GPU", 0) for node in list_nodes())
    return "cuda" if offered or find_build() == "cuda" else "cpu"


def describe_cluster(config: RayConfig) -> dict[str, Any]:
    """The living nodes of the cluster that was joined; nothing where this machine is alone.

    Beside what `grpo.environment` says of this machine, which may be the least of them.
    """
    return {} if config.address is None else {"nodes": _describe_nodes()}


def _describe_nodes() -> list[dict[str, Any]]:
    return [
        {
            "host": node["NodeManagerHostname"],
            "cpu_cores": resources.get("CPU", 0),
            "gpus": resources.get("GPU", 0),
            "gpu_kinds": [
                name.removeprefix(_ACCELERATOR)
                for name in sorted(resources)
                if name.startswith(_ACCELERATOR)
            ],
            "memory_gib": round(resources.get("memory", 0) / 2**30, 1),
        }
        for node in ray.nodes()
        if node["Alive"]
        for resources in (node["Resources"],)
    ]


def stop_ray() -> None:
    """Leave the cluster; a Ray that was started here ends with its processes."""
    ray.shutdown()
