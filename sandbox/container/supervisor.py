"""The container's main process: takes jobs from the judge, has them run, answers with facts."""

from __future__ import annotations

import base64
import contextlib
import gc
import json
import os
import socket
import sys
from importlib.util import find_spec
from typing import Any

from sandbox.container import kernel, processes, wire, zygote
from sandbox.container.isolation import Isolation, Mode
from sandbox.container.meter import CGROUP, Meter
from sandbox.container.talk import CHANNEL_IN, CHANNEL_OUT, ChannelClosed, Talk
from sandbox.container.watch import MAX_TURNS, Facts, Limits, Watch


class Supervisor:
    """Owns the channel to the judge.

    Args:
        light: Connection to the zygote of programs that need no heavy library.
        heavy: Connection to that of the others; None as long as there is none.
        preload_heavy: The heavy libraries.
        isolation: Keeps programs apart, and knows their processes.
        meter: Counts their CPU time.
        base_bytes: Address space that a program has mapped before it starts, where that is all
            that limits its memory.
    """

    def __init__(
        self,
        *,
        light: socket.socket,
        heavy: socket.socket | None,
        preload_heavy: list[str],
        isolation: Isolation,
        meter: Meter,
        base_bytes: int | None,
    ) -> None:
        self._light = light
        self._heavy = heavy
        self._preload_heavy = preload_heavy
        self._isolation = isolation
        self._meter = meter
        self._base_bytes = base_bytes

    def serve(self) -> None:
        """Answer jobs until the judge closes the channel."""
        while (job := wire.read_frame(CHANNEL_IN)) is not None:
            if "kind" in job:  # else it was meant for a program that has just ended
                stamp = {"seq": job["seq"], "nonce": job["nonce"]}
                wire.write_frame(CHANNEL_OUT, {**stamp, "runs": self._run(job, stamp)})

    def _run(self, job: dict[str, Any], stamp: dict[str, Any]) -> list[dict[str, Any]]:
        match job["kind"]:
            case "calls":
                return self._run_calls(job)
            case "talk":
                return [self._run_talk(job, stamp)]
            case _:
                return self._run_inputs(job)

    def _run_talk(self, job: dict[str, Any], stamp: dict[str, Any]) -> dict[str, Any]:
        """A program that is spoken to: it answers test code, or it is test code and asks."""
        task = {"program": job["program"], "answers": True, "calls": None, "test": job["test"]}
        reader, writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(writer, False)
        talk = Talk(writer, stamp)
        try:
            facts = self._run_one(job, task, b"", calls=MAX_TURNS, further=(reader,), talk=talk)
            return _as_json(facts)
        finally:
            talk.close()

    def _run_inputs(self, job: dict[str, Any]) -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = []
        for text in job["inputs"]:
            files = [_memory_file("file", base64.b64decode(one)) for one in job["files"]]
            task = {"program": job["program"], "answers": False, "test": None}
            task["num_files"] = len(files)
            facts = self._run_one(job, task, base64.b64decode(text), further=tuple(files))
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
            rest = calls[done:]
            task = {"program": job["program"], "answers": True, "calls": rest, "test": None}
            facts = self._run_one(job, task, b"", calls=len(calls) - done)
            del facts.answers[len(calls) - done :]
            runs.append({**_as_json(facts), "first": done})
            done += len(facts.answers) + 1
            if job["stop_early"] or not facts.ready:
                break
        return runs

    def _run_one(
        self,
        job: dict[str, Any],
        task: dict[str, Any],
        stdin: bytes,
        *,
        calls: int = 1,
        further: tuple[int, ...] = (),
        talk: Talk | None = None,
    ) -> Facts:
        limits, connection = job["limits"], self._zygote(heavy=job["heavy"])
        task_file = _memory_file("task", json.dumps(task).encode("ascii"))
        stdin_file = _memory_file("stdin", stdin)
        pipes = [_pipe() for _ in range(3)]
        ends = [task_file, stdin_file, *(writer for _, writer in pipes), *further]
        request = {
            "uid": self._isolation.next_user(),
            "namespaces": self._isolation.mode is Mode.NAMESPACE,
            "limits": self._resource_limits(limits, calls),
        }
        socket.send_fds(connection, [json.dumps(request).encode()], ends)
        for descriptor in ends:
            os.close(descriptor)
        readers = (pipes[0][0], pipes[1][0], pipes[2][0])
        watched = Limits(**{name: limits[name] for name in Limits._fields})
        return Watch(connection, readers, watched, self._isolation, self._meter, talk=talk).run()

    def _zygote(self, *, heavy: bool) -> socket.socket:
        if not heavy:
            return self._light
        if self._heavy is None:
            self._heavy, id_ = _fork_heavy(self._light, self._preload_heavy)
            self._isolation.add_zygote(id_)
        return self._heavy

    def _resource_limits(self, limits: dict[str, Any], calls: int) -> dict[str, int]:
        address_space = limits["address_space_bytes"]
        if self._base_bytes is not None:
            address_space = self._base_bytes + limits["memory_bytes"]
        found = {
            # A backstop well above the CPU limit: the kernel samples CPU time by ticks and may stop
            # a program early.
            "CPU": int((1.5 * limits["cpu_s"] + 1) * calls) + 1,
            "AS": address_space,
            "NPROC": limits["processes"],
            "FSIZE": 0,
            "NOFILE": 32,
            "CORE": 0,
            "MEMLOCK": 0,
            "MSGQUEUE": 0,
        }
        if self._isolation.mode is Mode.SAME_USER:
            # The kernel counts everything of this user on the machine: in a container that is this
            # process and its zygotes; elsewhere `Watch` stands in.
            found["NPROC"] += len(self._isolation.own)
            if self._base_bytes is not None:
                del found["NPROC"]
        return found


def main() -> None:
    """Start the zygotes, say that this container is ready, serve."""
    config = wire.read_frame(CHANNEL_IN)
    if config is None:
        return
    mode = Mode(config["mode"])
    if mode is Mode.SAME_USER:
        kernel.set_dumpable(on=False)  # programs of the same user must not read this memory
    adopts = not config["alone"]
    preload, preload_heavy = config["preload"], config["preload_heavy"]
    missing = [name for name in preload_heavy if find_spec(name) is None]
    gc.collect()
    gc.freeze()  # or their collections would copy the pages that they share with this process
    light, light_id, missing_light = _start_zygote(preload=preload, mode=mode, adopts=adopts)
    isolation = Isolation(
        mode=mode,
        first_uid=config["first_uid"],
        own=processes.process_ids() if config["alone"] else set(),
        zygotes={light_id},
        alone=config["alone"],
    )
    heavy = base_bytes = None
    if not config["own_cgroup"]:  # the memory limit counts from what is mapped with everything
        heavy, heavy_id = _fork_heavy(light, preload_heavy)
        isolation.add_zygote(heavy_id)
        base_bytes = processes.mapped_bytes(heavy_id)
    supervisor = Supervisor(
        light=light,
        heavy=heavy,
        preload_heavy=preload_heavy,
        isolation=isolation,
        meter=Meter(CGROUP if config["own_cgroup"] else None),
        base_bytes=base_bytes,
    )
    ready = {"python": sys.version.split()[0], "missing": sorted({*missing, *missing_light})}
    wire.write_frame(CHANNEL_OUT, ready)
    with contextlib.suppress(ChannelClosed):  # then nobody is left to answer
        supervisor.serve()
    if not config["alone"]:  # elsewhere everything ends with this process
        while left := isolation.members():
            isolation.end(left)


def _start_zygote(**traits: Any) -> tuple[socket.socket, int, list[str]]:
    """Fork the first zygote; returns a connection to it, its id, and the modules it looked for."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        try:
            ours.close()
            zygote.main(theirs, **traits)
        finally:
            os._exit(70)
    theirs.close()
    ready = _hear_ready(ours)
    return ours, ready["id"], ready["missing"]


def _fork_heavy(light: socket.socket, preload: list[str]) -> tuple[socket.socket, int]:
    """Make the zygote with the heavy libraries; returns a connection to it, and its id.

    Forking a process in which these are loaded costs several times as much, and most containers
    never need them, so it comes with the first program that does. It is a child of the other one:
    this process has seen programs by then, and would hand them on.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        request = json.dumps({"preload": preload}).encode()
        socket.send_fds(light, [request], [theirs.fileno()])
    return ours, _hear_ready(ours)["id"]


def _hear_ready(connection: socket.socket) -> dict[str, Any]:
    first_word = connection.recv(1 << 16)
    if not first_word:
        raise RuntimeError("the zygote died while it loaded libraries")
    return json.loads(first_word)


def _pipe() -> tuple[int, int]:
    reader, writer = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(reader, False)
    with contextlib.suppress(PermissionError):  # gVisor's pipes have no mode to change
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


def _as_json(facts: Facts) -> dict[str, Any]:
    plain = dict(vars(facts))
    plain["stdout"] = base64.b64encode(facts.stdout).decode("ascii")
    plain["stderr"] = base64.b64encode(facts.stderr).decode("ascii")
    return plain
