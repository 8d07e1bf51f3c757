"""Namespaces of its own for one program: no other process is there to be seen, or to stay behind.

The process that enters forks twice. The first fork is process 1 of a new namespace: when it ends,
the kernel ends everything in there. The second one, an ordinary process, runs the program.
"""

from __future__ import annotations

import os
import signal
import struct
from pathlib import Path
from typing import NoReturn

from sandbox.container import kernel

_NEW_MOUNTS, _NEW_IPC, _NEW_USERS, _NEW_PROCESSES = 0x20000, 0x8000000, 0x10000000, 0x20000000
_READ_ONLY, _NO_SUID, _NO_DEVICES, _NO_PROGRAMS = 1, 2, 4, 8
_REMOUNT, _BIND, _RECURSIVE, _PRIVATE = 32, 4096, 16384, 1 << 18

# What the container's own filter grants only so that this module can work, by machine: mount,
# unshare, capset.
_FORBIDDEN = {"x86_64": (165, 272, 126), "aarch64": (40, 97, 91)}
_LOAD_WORD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | 1

_STATUS = struct.Struct("i")


def prepare() -> None:
    """Load what `enter` needs; done once, before the forks."""
    kernel.load()
    _filter()


def enter() -> None:
    """Continue in new user, process, mount and IPC namespaces, without any right in them.

    Returns only in the process that is to run the program; the calling one waits for its end, and
    then ends in the same way.

    Raises:
        OSError: The kernel, its configuration or a security module refuses.
    """
    uid, gid = os.getuid(), os.getgid()
    # The files below are the superuser's as long as this process has the mark of a changed user.
    kernel.set_dumpable(on=True)
    kernel.unshare(_NEW_USERS | _NEW_PROCESSES | _NEW_MOUNTS | _NEW_IPC)
    Path("/proc/self/setgroups").write_text("deny", "ascii")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1", "ascii")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1", "ascii")
    reader, writer = os.pipe()
    first = os.fork()
    if first:
        os.close(writer)
        _end_as(os.read(reader, _STATUS.size))
    os.close(reader)
    program = os.fork()
    if program:
        _be_first(program, writer)
    os.close(writer)
    _hide_processes()
    kernel.drop_capabilities()
    kernel.install_filter(_filter())


def _be_first(program: int, writer: int) -> NoReturn:
    """Collect what ends in this namespace until the program has, then take everything down."""
    while True:
        ended, status = os.wait()
        if ended == program:
            os.write(writer, _STATUS.pack(status))
            os._exit(0)


def _end_as(packed: bytes) -> NoReturn:
    if len(packed) < _STATUS.size:
        os._exit(1)  # the whole namespace was killed, and this process with it in a moment
    os.wait()  # for the namespace's end, which makes its CPU time and memory this process's
    code = os.waitstatus_to_exitcode(_STATUS.unpack(packed)[0])
    if code < 0:
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _hide_processes() -> None:
    """Replace /proc, where the container's other processes are, by one that holds only /proc/self.

    Docker covers parts of /proc, and the kernel refuses a new one to whoever sees it covered.
    """
    kernel.mount("none", "/", None, _RECURSIVE | _PRIVATE)
    os.chdir("/proc/self")
    bare = _NO_SUID | _NO_DEVICES | _NO_PROGRAMS
    kernel.mount("none", "/proc", "tmpfs", bare, "size=4k,mode=755")
    Path("/proc/self").mkdir()
    kernel.mount(".", "/proc/self", None, _BIND)
    kernel.mount("none", "/proc", None, _REMOUNT | _BIND | _READ_ONLY | bare)
    os.chdir("/")


def _filter() -> bytes:
    numbers = _FORBIDDEN[os.uname().machine]
    lines = [struct.pack("HBBI", _LOAD_WORD, 0, 0, 0)]
    for index, number in enumerate(numbers):
        to_refusal = len(numbers) - index
        lines.append(struct.pack("HBBI", _JUMP_IF_EQUAL, to_refusal, 0, number))
    lines.append(struct.pack("HBBI", _RETURN, 0, 0, _ALLOW))
    lines.append(struct.pack("HBBI", _RETURN, 0, 0, _REFUSE))
    return b"".join(lines)
