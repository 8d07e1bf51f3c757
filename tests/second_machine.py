"""A machine of its own for a Ray node: a network namespace, joined to this one by one cable."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# Of the block that is set aside for tests of networks.
HERE, THERE = "198.18.77.1", "198.18.77.2"


def run(*command):
    subprocess.run(command, check=True, capture_output=True, text=True)


class SecondMachine:
    """A Ray node that shares the processors and the disk of this machine, and nothing else.

    It has its own network, its own shared memory and its own folder for Ray.

    Raises:
        pytest.skip.Exception: This machine lets nobody make one.
    """

    def __init__(self):
        self._name = f"verigrad{os.getpid()}"
        self._cable = f"vg{os.getpid()}"
        self._started = []
        if shutil.which("ip") is None:
            pytest.skip("a second machine needs the command `ip` (package iproute2)")
        made = subprocess.run(
            ["ip", "netns", "add", self._name], capture_output=True, text=True, check=False
        )
        if made.returncode:
            pytest.skip(f"this machine gives no network namespaces: {made.stderr.strip()}")
        try:
            self._lay_cable()
        except subprocess.CalledProcessError as error:
            self.close()
            pytest.skip(f"this machine gives no virtual cables: {error.stderr.strip()}")

    def _lay_cable(self):
        inside, there = f"{self._cable}i", ("ip", "-n", self._name)
        run("ip", "link", "add", self._cable, "type", "veth", "peer", inside, "netns", self._name)
        run("ip", "address", "add", f"{HERE}/30", "dev", self._cable)
        run("ip", "link", "set", self._cable, "up")
        run(*there, "address", "add", f"{THERE}/30", "dev", inside)
        run(*there, "link", "set", inside, "up")
        run(*there, "link", "set", "lo", "up")
        run(*there, "route", "add", "default", "via", HERE)

    def join(self, address, *, num_cpus, store_bytes):
        """Start a Ray node there, without waiting for it; the process that it lives as long as."""
        ray = Path(sys.executable).with_name("ray")
        # Mounts made in `ip netns exec` are seen by its processes alone.
        own_folders = "; ".join(
            f"mkdir -p {folder}; mount -t tmpfs none {folder}"
            for folder in ("/dev/shm", "/tmp/ray")
        )
        start = (
            f"{own_folders}; exec {ray} start --block --address={address} "
            f"--node-ip-address={THERE} --num-cpus={num_cpus} --object-store-memory={store_bytes}"
        )
        return self.start("sh", "-ec", start, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def start(self, *command, **options):
        """Start a process there; it ends with the machine."""
        process = subprocess.Popen(
            ["ip", "netns", "exec", self._name, *command], start_new_session=True, **options
        )
        self._started.append(process)
        return process

    def processes(self):
        """Command lines of what runs there."""
        lines = []
        for pid in self._pids():
            try:
                lines.append(Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "))
            except OSError:
                continue  # ended meanwhile
        return lines

    def cut_off(self):
        """Take the cable out: from now on packets vanish, and nobody is told."""
        run("ip", "link", "set", self._cable, "down")

    def close(self):
        """End what runs there and remove everything; safe at any time."""
        while pids := self._pids():
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.1)
        for process in self._started:
            process.wait()
        for command in (("link", "delete", self._cable), ("netns", "delete", self._name)):
            subprocess.run(["ip", *command], capture_output=True, check=False)

    def _pids(self):
        found = subprocess.run(
            ["ip", "netns", "pids", self._name], capture_output=True, text=True, check=False
        )
        return [int(pid) for pid in found.stdout.split()]
