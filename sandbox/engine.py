"""The Docker engine: the only file that talks to its API."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import docker.errors
import requests.exceptions
from docker.utils import kwargs_from_env

from sandbox.errors import Cause, SandboxUnavailable

ENGINE_TIMEOUT_S = 60
BUILD_TIMEOUT_S = 1200
REMOVE_TRIES = 200
KILL_EVENT_WAIT_S = 0.3
_CONFLICT = 409


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """One container to start.

    Attributes:
        image: What it runs.
        command: Its main process.
        environment: All of its environment.
        labels: How it is found again.
        host_config: Limits and isolation, in the names of `docker.types.HostConfig`.
        user: Whose its main process is, `uid:gid`.
    """

    image: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    labels: Mapping[str, str]
    host_config: Mapping[str, Any]
    user: str = "0:0"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedContainer:
    """A container that carries one of our labels."""

    id: str
    state: str
    created: float
    labels: Mapping[str, str]


class Engine:
    """A connection to the Docker engine; safe to use from several threads."""

    def __init__(self) -> None:
        """Connect to the engine that `DOCKER_HOST`, or else the local socket, names.

        Raises:
            SandboxUnavailable: Nothing answers there, or this user may not ask.
        """
        try:
            self._client = docker.from_env(timeout=ENGINE_TIMEOUT_S, max_pool_size=32)
            self._api = self._client.api
            self._api.ping()
        except (
            docker.errors.DockerException,
            requests.exceptions.RequestException,
            OSError,
        ) as error:
            raise _unreachable(error) from error

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def alive(self) -> bool:
        """Whether the engine answers now."""
        try:
            return bool(self._api.ping())
        except (docker.errors.DockerException, requests.exceptions.RequestException, OSError):
            return False

    def runtimes(self) -> tuple[str, ...]:
        """Names of the container runtimes that the engine has registered."""
        return tuple(self._api.info().get("Runtimes") or ())

    def has_image(self, image: str) -> bool:
        """Whether the image is on this machine."""
        try:
            self._api.inspect_image(image)
        except docker.errors.ImageNotFound:
            return False
        return True

    def image_bytes(self, image: str) -> int:
        """Size of an image that is present."""
        return int(self._api.inspect_image(image)["Size"])

    def pull(self, image: str) -> bool:
        """Fetch an image; False where no registry hands it out."""
        try:
            self._client.images.pull(image)
        except (docker.errors.APIError, requests.exceptions.RequestException):
            return False
        return True

    def build(self, dockerfile: str, *, context: Path, image: str) -> str | None:
        """Build an image; None on success, the build's complaint otherwise."""
        builder = docker.APIClient(**_connection(), timeout=BUILD_TIMEOUT_S)
        try:
            (context / "Dockerfile").write_text(dockerfile, encoding="utf-8")
            log = builder.build(
                path=str(context), tag=image, rm=True, forcerm=True, pull=False, decode=True
            )
            for line in log:
                if "error" in line:
                    return str(line["error"])
        except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
            return str(error)
        finally:
            builder.close()
        return None

    def import_tar(self, archive: Path, *, image: str) -> None:
        """Make an image of a root file system.

        Raises:
            SandboxUnavailable: The engine refuses the archive.
        """
        importer = docker.APIClient(**_connection(), timeout=BUILD_TIMEOUT_S)
        repository, _, tag = image.rpartition(":")
        try:
            importer.import_image(src=str(archive), repository=repository, tag=tag)
        except docker.errors.DockerException as error:
            message = f"The Docker engine did not take the root file system for {image}: {error}"
            raise SandboxUnavailable(Cause.CANNOT_BUILD, message) from error
        finally:
            importer.close()

    def create(self, spec: ContainerSpec) -> str:
        """Create a container, its stdin open for exactly one attachment; returns its id."""
        created = self._api.create_container(
            spec.image,
            command=list(spec.command),
            environment=dict(spec.environment),
            labels=dict(spec.labels),
            user=spec.user,
            working_dir="/",
            stdin_open=True,
            network_disabled=True,
            host_config=self._api.create_host_config(**spec.host_config),
        )
        return str(created["Id"])

    def attach(self, container_id: str) -> socket.socket:
        """Open stdin, stdout and stderr as one multiplexed stream; to be done before `start`."""
        params = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        stream = self._api.attach_socket(container_id, params=params)
        # Over a local socket and over TCP the SDK hands out a SocketIO around the socket.
        raw = getattr(stream, "_sock", stream)
        assert isinstance(raw, socket.socket), type(raw)
        own = raw.dup()
        stream.close()
        raw.close()
        return own

    def start(self, container_id: str) -> None:
        """Start a created container."""
        self._api.start(container_id)

    def remove(self, container_id: str) -> None:
        """Kill and remove a container; returns when it is gone, as it may be already."""
        for _ in range(REMOVE_TRIES):
            try:
                self._api.remove_container(container_id, force=True)
            except docker.errors.NotFound:
                return
            except docker.errors.APIError as error:
                if error.status_code != _CONFLICT:
                    raise
            # Removed by us, or being removed by the engine itself: see whether it is gone.
            time.sleep(0.02)
        raise docker.errors.DockerException(f"container {container_id} cannot be removed")

    def was_killed(self, container_id: str) -> bool:
        """Whether somebody has asked this engine, within the last minute, to kill a container."""
        now = time.time()
        # Fractions of seconds, which the engine takes and the SDK's types do not know. The event
        # follows the death that it caused by some milliseconds.
        since: Any = f"{now - 60:.6f}"
        until: Any = f"{now + KILL_EVENT_WAIT_S:.6f}"
        events = self._api.events(
            since=since,
            until=until,
            filters={"container": container_id, "event": "kill"},
            decode=True,
        )
        try:
            return any(True for _ in events)
        finally:
            events.close()

    def list_labelled(self, label: str) -> tuple[ListedContainer, ...]:
        """Every container, in any state, that carries the label."""
        found = self._api.containers(all=True, filters={"label": label})
        return tuple(
            ListedContainer(
                id=one["Id"],
                state=one["State"],
                created=float(one["Created"]),
                labels=one["Labels"] or {},
            )
            for one in found
        )


ENGINE_ERRORS = (
    docker.errors.DockerException,
    requests.exceptions.RequestException,
    OSError,
)
"""What a call may raise when the engine is away, restarts or refuses."""


def _connection() -> dict[str, Any]:
    return {**kwargs_from_env()}


def _unreachable(error: Exception) -> SandboxUnavailable:
    text = str(error)
    if "PermissionError" in text or "Permission denied" in text:
        return SandboxUnavailable(
            Cause.PERMISSION,
            "This user may not use the Docker engine's socket. Join its group and log in again: "
            "sudo usermod -aG docker $USER; or point DOCKER_HOST at a rootless engine.",
        )
    return SandboxUnavailable(
        Cause.NO_ENGINE,
        "No Docker engine answers, and model-written code is only run in containers. Start it "
        "(sudo systemctl start docker, or sudo dockerd &), install it (sudo apt-get install "
        f"docker.io), or set DOCKER_HOST to one that runs. The connection said: {text}",
    )
