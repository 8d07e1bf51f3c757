"""A Docker engine of a test's own, which it may stop, kill, fill up and start again."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Self

import docker
import psutil

from sandbox.image import DEFAULT_IMAGE

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 60
# An engine without a network has none to give to gVisor, and not every machine has what its
# quicker platforms need.
GVISOR = {"runsc": {"path": "runsc", "runtimeArgs": ["--network=none", "--platform=ptrace"]}}


class OwnEngine:
    """A `dockerd` beside the machine's own, with its own folder, socket and containers.

    Args:
        folder: Where it keeps everything.
        runtimes: Container runtimes that it registers: by name, as in `daemon.json`.
    """

    def __init__(self, folder: Path, runtimes: dict[str, Any] | None = None) -> None:
        self.folder = folder
        # A socket's path must be short.
        self._socket_dir = Path(tempfile.mkdtemp(prefix="engine-"))
        self.url = f"unix://{self._socket_dir}/s"
        (folder / "daemon.json").write_text(json.dumps({"runtimes": runtimes or {}}))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        self._remove_stale()
        command = [
            "dockerd",
            f"--host={self.url}",
            f"--data-root={self.folder / 'data'}",
            f"--exec-root={self._socket_dir / 'exec'}",
            f"--pidfile={self._socket_dir / 'pid'}",
            "--bridge=none",
            "--iptables=false",
            "--ip6tables=false",
            f"--config-file={self.folder / 'daemon.json'}",
        ]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        give_up = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            log_text = (self.folder / "log").read_text(errors="replace")[-2000:]
            assert self._process.poll() is None, log_text
            assert time.monotonic() < give_up, log_text
            time.sleep(0.1)

    def stop(self, kind: signal.Signals = signal.SIGTERM) -> None:
        """End it: SIGTERM takes its containers along, SIGKILL leaves them."""
        assert self._process is not None
        self._process.send_signal(kind)
        self._process.wait(STOP_TIMEOUT_S)
        self._process = None

    def load_image(self) -> None:
        """Copy the sandbox's image from the machine's own engine."""
        source = docker.from_env()
        target = docker.DockerClient(base_url=self.url)
        try:
            archive = self.folder / "image.tar"
            with archive.open("wb") as file:
                for chunk in source.images.get(DEFAULT_IMAGE).save(named=True):
                    file.write(chunk)
            with archive.open("rb") as file:
                target.images.load(file)
            archive.unlink()
        finally:
            source.close()
            target.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it and remove all of it."""
        if self._process is not None:
            self.stop()
        self._remove_stale()
        self._unmount()
        for process in psutil.process_iter(
            ["cmdline"]
        ):  # guardians of a killed engine's containers
            if any(str(self._socket_dir) in word for word in process.info["cmdline"] or ()):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        shutil.rmtree(self._socket_dir, ignore_errors=True)

    def _remove_stale(self) -> None:
        """End the container daemon that a killed engine has left; it would hold the folder."""
        pid_file = self._socket_dir / "exec" / "containerd" / "containerd.pid"
        if self._process is None and pid_file.exists():
            with contextlib.suppress(ProcessLookupError):  # it went with its engine
                os.kill(int(pid_file.read_text()), signal.SIGTERM)
            pid_file.unlink(missing_ok=True)

    def _unmount(self) -> None:
        """Let go of what a killed engine has left mounted in its folder."""
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in sorted((m for m in mounts if Path(m).is_relative_to(self.folder)), key=len):
            if Path(mount) != self.folder:
                subprocess.run(["umount", "--lazy", mount], capture_output=True, check=False)

    def _answers(self) -> bool:
        connection = socket.socket(socket.AF_UNIX)
        with connection:
            connection.settimeout(2)
            try:
                connection.connect(self.url.removeprefix("unix://"))
                connection.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
                return b" 200 " in connection.recv(4096)
            except OSError:
                return False
