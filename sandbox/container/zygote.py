"""The parent of every program: libraries loaded, and no knowledge of any job.

A program's memory is a copy of its parent's. A parent that had seen other programs would hand them
on, so this process learns a user id and limits, and passes descriptors it never reads.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import traceback
from pathlib import Path
from typing import Any, NoReturn

from sandbox.container import candidate, kernel, namespaces, values
from sandbox.container.isolation import Mode

# Descriptors below this are where a program's own go.
PLACES = 10
# No program's, and nothing that a program could learn from.
_TYPICAL = """
import sys
from collections import defaultdict

def solve(values, *more, key=None, **options):
    counts = defaultdict(int)
    for index, value in enumerate(sorted(values, key=key)):
        counts[value] += index if value % 2 else -index
    return {k: [v / 3, str(v)] for k, v in counts.items()}

class Solution:
    def run(self, text):
        try:
            return [int(word) for word in text.split()]
        except ValueError as error:
            return f"{error!r:>10}"

result = solve(Solution().run("3 1 2")), Solution().run("x"), (lambda x: x and {x})(1)
"""


def main(connection: socket.socket, *, preload: list[str], mode: Mode, adopts: bool) -> NoReturn:
    """Serve forks until the supervisor's end of the connection closes.

    Args:
        connection: This end of it.
        preload: Modules to load.
        mode: How programs are kept apart.
        adopts: Whether what programs leave is to become this process's child.
    """
    _cut_channel(connection)
    missing = _preload(preload)
    if mode is Mode.NAMESPACE:
        namespaces.prepare()
    if adopts:
        kernel.adopt_orphans()
    _warm_up()
    gc.collect()
    # Keeps later collections from writing to, and so copying, the pages that all programs share.
    gc.freeze()
    connection.send(json.dumps({"missing": missing, "id": os.getpid()}).encode())
    while True:
        request, descriptors, _, _ = socket.recv_fds(connection, 4096, PLACES)
        if not request:
            os._exit(0)
        task = json.loads(request)
        if "preload" in task:
            _fork_zygote(descriptors[0], preload=task["preload"], mode=mode, adopts=adopts)
            continue
        _serve(connection, task, list(descriptors))
        if adopts:
            _reap_adopted()


def _fork_zygote(descriptor: int, **traits: Any) -> None:
    """Make another zygote, with more libraries, which serves the supervisor on its own."""
    child = os.fork()
    if child == 0:
        try:
            # All said, for the container's system calls do not let a socket be asked what it is.
            kind = (socket.AF_UNIX, socket.SOCK_SEQPACKET, 0)
            main(socket.socket(*kind, fileno=descriptor), **traits)
        except BaseException:  # noqa: BLE001 (a fork must never come back into this loop)
            traceback.print_exc()
        finally:
            os._exit(candidate.NEVER_STARTED)
    os.close(descriptor)


def _serve(connection: socket.socket, request: dict[str, Any], descriptors: list[int]) -> None:
    child = os.fork()
    if child == 0:
        try:
            candidate.run(
                request["uid"],
                request["limits"],
                descriptors,
                namespaces_too=request["namespaces"],
            )
        except BaseException:  # noqa: BLE001 (a fork must never come back into this loop)
            traceback.print_exc()
        finally:
            os._exit(candidate.NEVER_STARTED)
    for descriptor in descriptors:
        os.close(descriptor)
    _, status, usage = os.wait4(child, 0)
    ended = {
        "code": os.waitstatus_to_exitcode(status),
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "memory_kb": usage.ru_maxrss,
    }
    connection.send(json.dumps(ended).encode())


def _reap_adopted() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass  # none is left


def _cut_channel(connection: socket.socket) -> None:
    """Occupy the low descriptors, close the rest: no program may inherit the way to the judge."""
    keep = connection.fileno()
    null = os.open("/dev/null", os.O_RDWR)
    for place in range(PLACES):
        if place != keep:
            os.dup2(null, place)
    for descriptor in {int(entry.name) for entry in os.scandir("/proc/self/fd")} - {
        *range(PLACES),
        keep,
    }:
        try:
            os.close(descriptor)
        except OSError:
            continue  # the listing's own descriptor, closed by now
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _warm_up() -> None:
    """Do once what every program does, so that its memory is there and its caches are filled.

    Each page of memory that a fork need not fetch or copy anew saves it some microseconds.
    """
    candidate.own_modules()
    namespace: dict[str, Any] = {}
    exec(compile(_TYPICAL, candidate.PROGRAM_NAME, "exec", dont_inherit=True), namespace)  # noqa: S102
    for mode in ("r", "w"):
        with Path(os.devnull).open(mode, encoding="utf-8") as file:
            file.close()
    values.decode(json.loads(json.dumps(values.encode(namespace["result"]))))


def _preload(names: list[str]) -> list[str]:
    missing: list[str] = []
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            missing.append(name)
    return missing
