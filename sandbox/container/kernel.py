"""System calls that Python does not offer; the C library is loaded only where one is made."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

_SET_DUMPABLE = 4
_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2
_SET_CHILD_SUBREAPER = 36
_CAPABILITY_VERSION_3 = 0x20080522


def load() -> None:
    """Load the C library now, so that forks find it in memory."""
    _libc()


def set_dumpable(*, on: bool) -> None:
    """Let processes of the same user read this one's memory, or keep them from it."""
    _check("prctl", _libc().prctl(_SET_DUMPABLE, int(on), 0, 0, 0))


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends."""
    _check("prctl", _libc().prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def unshare(flags: int) -> None:
    """Leave the namespaces that the flags name for new ones."""
    _check("unshare", _libc().unshare(flags))


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """Mount, bind or remount, as the flags say."""
    names = [None if one is None else one.encode() for one in (source, target, kind)]
    _check("mount", _libc().mount(*names, flags, data.encode()))


def drop_capabilities() -> None:
    """Give up every capability for good."""
    import ctypes

    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _check("capset", _libc().capset(header, nothing))


def install_filter(program: bytes) -> None:
    """Have every later system call of this process and its children pass a BPF program."""
    import ctypes

    class Filter(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("program", ctypes.c_char_p))

    one = Filter(len(program) // 8, program)
    done = _libc().prctl(_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(one), 0, 0)
    _check("prctl", done)


@cache
def _libc() -> Any:
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    library.mount.argtypes = (*[ctypes.c_char_p] * 3, ctypes.c_ulong, ctypes.c_char_p)
    return library


def _check(name: str, result: int) -> None:
    if result != 0:
        import ctypes

        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
