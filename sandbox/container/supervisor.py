"""The container's main process: takes jobs from the judge, has them run, answers with facts."""

from __future__ import annotations

import base64
import json
import os
import socket
import sys
from dataclasses import asdict
from typing import Any

from sandbox.container import processes, wire, zygote
from sandbox.container.watch import CHANNEL_IN, ChannelClosed, Facts, Limits, Watch

CHANNEL_OUT = 1
USERS = 96


class Supervisor:
    """Owns the channel to the judge, and the uids of this container.

    Args:
        first_uid: The first of its uids; the killer's.
        zygotes: Connections to the zygotes, by whether the heavy libraries are loaded in it.
        baseline: The processes that are not a program's.
    """

    def __init__(
        self, first_uid: int, zygotes: dict[bool, socket.socket], baseline: set[int]
    ) -> None:
        self._killer = first_uid
        self._zygotes = zygotes
        self._baseline = baseline
        self._runs = 0

    def serve(self) -> None:
        """Answer jobs until the judge closes the channel."""
        while (job := wire.read_frame(CHANNEL_IN)) is not None:
            runs = self._run_calls(job) if job["kind"] == "calls" else self._run_inputs(job)
            wire.write_frame(CHANNEL_OUT, {"seq": job["seq"], "nonce": job["nonce"], "runs": runs})

    def _run_inputs(self, job: dict[str, Any]) -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = []
        for text in job["inputs"]:
            task = {"program": job["program"], "calls": None}
            facts = self._run_one(job, task, base64.b64decode(text))
            runs.append(_as_json(facts))
            if job["stop_early"] and (facts.ended != "exit" or facts.code != 0):
                break
        return runs

    def _run_calls(self, job: dict[str, Any]) -> list[dict[str, Any]]:
        """One fork for all calls; another for the rest where a call takes its process down."""
        runs: list[dict[str, Any]] = []
        calls = job["calls"]
        done = 0
        while done < len(calls):
            task = {"program": job["program"], "calls": calls[done:]}
            facts = self._run_one(job, task, b"", calls=len(calls) - done)
            del facts.answers[len(calls) - done :]
            runs.append({**_as_json(facts), "first": done})
            done += len(facts.answers) + 1
            if job["stop_early"] or not facts.ready:
                break
        return runs

    def _run_one(
        self, job: dict[str, Any], task: dict[str, Any], stdin: bytes, *, calls: int = 1
    ) -> Facts:
        limits, connection = job["limits"], self._zygotes[job["heavy"]]
        uid = self._killer + 1 + self._runs % (USERS - 1)
        self._runs += 1
        task_file = _memory_file("task", json.dumps(task).encode("ascii"))
        stdin_file = _memory_file("stdin", stdin)
        pipes = [_pipe() for _ in range(3)]
        ends = [task_file, stdin_file, *(writer for _, writer in pipes)]
        request = {"uid": uid, "limits": _resource_limits(limits, calls)}
        socket.send_fds(connection, [json.dumps(request).encode()], ends)
        for descriptor in ends:
            os.close(descriptor)
        readers = (pipes[0][0], pipes[1][0], pipes[2][0])
        watched = Limits(**{name: limits[name] for name in Limits.__dataclass_fields__})
        return Watch(connection, readers, watched, self._baseline, (uid, self._killer)).run()


def main() -> None:
    """Start the zygote, say that this container is ready, serve."""
    config = wire.read_frame(CHANNEL_IN)
    if config is None:
        return
    light, missing = _start_zygote(config["preload"])
    # Forking a process in which large libraries are loaded costs several times as much.
    heavy, missing_heavy = _start_zygote([*config["preload"], *config["preload_heavy"]])
    supervisor = Supervisor(
        config["first_uid"], {False: light, True: heavy}, processes.process_ids()
    )
    ready = {"python": sys.version.split()[0], "missing": sorted({*missing, *missing_heavy})}
    wire.write_frame(CHANNEL_OUT, ready)
    try:
        supervisor.serve()
    except ChannelClosed:
        return  # nobody is left to answer; the engine removes the container when this process ends


def _start_zygote(preload: list[str]) -> tuple[socket.socket, list[str]]:
    """Fork a zygote; returns the connection to it, and the modules that this image lacks."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        try:
            ours.close()
            zygote.main(theirs, preload)
        finally:
            os._exit(70)
    theirs.close()
    first_word = ours.recv(1 << 16)
    if not first_word:
        raise RuntimeError("the zygote died while it loaded libraries")
    return ours, json.loads(first_word)["missing"]


def _pipe() -> tuple[int, int]:
    reader, writer = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(reader, False)
    # Lets the program open /dev/stdout again after it has changed its user.
    os.fchmod(writer, 0o222)
    return reader, writer


def _memory_file(name: str, content: bytes) -> int:
    """A file without a path that holds the content; to be read from its start."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.fchmod(descriptor, 0o444)
    return descriptor


def _resource_limits(limits: dict[str, Any], calls: int) -> dict[str, int]:
    return {
        # A backstop well above the CPU limit: the kernel samples CPU time by ticks and may stop a
        # program early.
        "CPU": int((1.5 * limits["cpu_s"] + 1) * calls) + 1,
        "AS": limits["address_space_bytes"],
        "NPROC": limits["processes"],
        "FSIZE": 0,
        "NOFILE": 32,
        "CORE": 0,
        "MEMLOCK": 0,
        "MSGQUEUE": 0,
    }


def _as_json(facts: Facts) -> dict[str, Any]:
    plain = asdict(facts)
    plain["stdout"] = base64.b64encode(facts.stdout).decode("ascii")
    plain["stderr"] = base64.b64encode(facts.stderr).decode("ascii")
    return plain
