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
from typing import Any, NoReturn

from sandbox.container import candidate, kernel, namespaces
from sandbox.container.isolation import Mode

# Descriptors below this are where a program's own go.
PLACES = 10


def main(connection: socket.socket, *, preload: list[str], mode: Mode, adopts: bool) -> NoReturn:
    """Serve forks until the supervisor's end of the connection closes.

    Args:
        connection: This end of it.
        preload: Modules to load now.
        mode: How programs are kept apart.
        adopts: Whether what programs leave is to become this process's child.
    """
    _cut_channel(connection)
    missing = _preload(preload)
    if mode is Mode.NAMESPACE:
        namespaces.prepare()
    if adopts:
        kernel.adopt_orphans()
    gc.collect()
    # Keeps later collections from writing to, and so copying, the pages that all programs share.
    gc.freeze()
    connection.send(json.dumps({"missing": missing}).encode())
    while True:
        request, descriptors, _, _ = socket.recv_fds(connection, 4096, PLACES)
        if not request:
            os._exit(0)
        _serve(connection, json.loads(request), list(descriptors))
        if adopts:
            _reap_adopted()


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


def _preload(names: list[str]) -> list[str]:
    missing: list[str] = []
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            missing.append(name)
    return missing
