"""One forked process: it gives up its rights, then runs one program."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import functools
import json
import os
import resource
import struct
import sys
import traceback
import types
from typing import Any, NoReturn

from sandbox.container import kernel, namespaces, values, wire
from sandbox.container.answers import Answers

REPORT_FD = 3
# Files that a program is given; a program that is spoken to hears it there.
FURTHER_FD = 5
PROGRAM_NAME = "main.py"
# Exit code of a fork that failed before the program's first instruction; before that no program can
# choose a code.
NEVER_STARTED = 70

# Tags of the frames on the report pipe.
STARTED = b"S"
NOT_COMPILED = b"C"
READY = b"R"
VALUE = b"V"
RAISED = b"E"
NO_MEMORY = b"M"
# From test code: a request to the program under test; what became of the test.
REQUEST = b"Q"
DONE = b"D"

_REPORT_HEADER = struct.Struct(">cI")
_STREAMS = (
    ("stdin", "r", "surrogateescape"),
    ("stdout", "w", "surrogateescape"),
    ("stderr", "w", "backslashreplace"),
)


def run(
    uid: int | None, limits: dict[str, int], descriptors: list[int], *, namespaces_too: bool
) -> NoReturn:
    """Become the user `uid` under the limits, then run the task, and end the process.

    Args:
        uid: The user, and group, to become; None for none other.
        limits: Resource limits by name without `RLIMIT_`.
        descriptors: Task, stdin, stdout, stderr and report pipe.
        namespaces_too: Whether to enter new namespaces.
    """
    _take_places(descriptors)
    os.setsid()
    if uid is None:
        kernel.set_dumpable(on=True)  # else this process's own files below /proc are closed to it
    # When memory runs out, the kernel must take this process and not the supervisor.
    _write("/proc/self/oom_score_adj", b"1000")
    for name, limit in limits.items():
        _limit(getattr(resource, f"RLIMIT_{name}"), limit)
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    if namespaces_too:
        namespaces.enter()
    task = _read_task(REPORT_FD + 1)
    tester = sys.modules.get("sandbox.container.tester")
    _renew_interpreter(task.get("num_files", 0))
    if task["test"] is not None:
        assert tester is not None, "this container was not made for test code"
        _report(STARTED)
        _report(DONE, tester.run(task["test"], _ask))
        os._exit(0)
    code = _compile(task["program"])
    if code is None:
        os._exit(1)
    _report(STARTED)
    main = _main_module()
    exit_code = _execute(code, main)
    if not task["answers"]:
        exit_code = _finalize(main, exit_code)
    elif exit_code == 0:
        _report(READY)
        if task["calls"] is None:
            _answer_requests(main.__dict__)
        else:
            _answer_calls(main.__dict__, task["calls"])
    os._exit(exit_code)


def _limit(kind: int, limit: int) -> None:
    # gVisor refuses to set some; that its programs are held all the same is shown by canaries.
    with contextlib.suppress(ValueError):
        resource.setrlimit(kind, (limit, limit))


def _write(path: str, content: bytes) -> None:
    """As a path's own method does, without looking for a codec in every fork."""
    descriptor = os.open(path, os.O_WRONLY)
    os.write(descriptor, content)
    os.close(descriptor)


def _take_places(descriptors: list[int]) -> None:
    """Move the descriptors to their places: 0, 1, 2, the report's, the task's, and so on."""
    task, stdin, stdout, stderr, report, *further = descriptors
    ordered = (stdin, stdout, stderr, report, task, *further)
    # All of them lie above the places: the zygote keeps those occupied.
    for place, source in enumerate(ordered):
        os.dup2(source, place, inheritable=place <= 2)
    os.closerange(len(ordered), 256)


def _read_task(descriptor: int) -> dict[str, Any]:
    with open(descriptor, "rb") as file:
        return json.load(file)


def _renew_interpreter(num_files: int) -> None:
    """Give the program what a fresh interpreter has: own streams, no trace of this package."""
    for number, (name, mode, errors) in enumerate(_STREAMS):
        stream = os.fdopen(number, mode, encoding="utf-8", errors=errors, closefd=False)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.argv = [PROGRAM_NAME, *(f"/proc/self/fd/{FURTHER_FD + i}" for i in range(num_files))]
    # Programs with honest large integers print more digits than the interpreter's default allows;
    # CPU time is limited.
    sys.set_int_max_str_digits(0)
    for name in own_modules():
        del sys.modules[name]


@functools.cache
def own_modules() -> tuple[str, ...]:
    """Names of this package's modules; asked for before the forks, or each would look at all."""
    return tuple(name for name in sys.modules if name.split(".")[0] == "sandbox")


def _compile(program: str) -> types.CodeType | None:
    try:
        return compile(program, PROGRAM_NAME, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        _report(NOT_COMPILED, f"{type(error).__name__}: {error}")
        return None


def _main_module() -> types.ModuleType:
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __file__=PROGRAM_NAME, __annotations__={})
    sys.modules["__main__"] = main
    return main


def _execute(code: types.CodeType, main: types.ModuleType) -> int:
    """Run the module's body; returns the exit code that a Python process would have had."""
    try:
        exec(code, main.__dict__)  # noqa: S102 (what all of this is for)
    except SystemExit as stop:
        return _exit_code(stop)
    except BaseException as error:  # noqa: BLE001 (it ends the program, as in any interpreter)
        if isinstance(error, MemoryError):
            _report(NO_MEMORY)
        frames = (
            error.__traceback__.tb_next if error.__traceback__ else None
        )  # its own, not this function's
        traceback.print_exception(type(error), error, frames, limit=-20)
        return 1
    return 0


def _exit_code(stop: SystemExit) -> int:
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code & 0xFF
    sys.stderr.write(f"{stop.code}\n")
    return 1


def _finalize(main: types.ModuleType, exit_code: int) -> int:
    """End as an interpreter does: wait for threads, run exit functions, drop globals, flush.

    A full finalization would also take every other module apart, which costs more than the typical
    program.
    """
    # Left to the programs that need it: with it loaded, every fork would cost a tenth more.
    threading = sys.modules.get("threading")
    if threading is not None:
        threading._shutdown()  # noqa: SLF001 (as the interpreter does)
    atexit._run_exitfuncs()  # noqa: SLF001 (as above)
    flushed = _flush()
    main.__dict__.clear()  # files that the program opened over its stdout are flushed by this
    if not (_flush() and flushed) and exit_code == 0:
        return 120  # what the interpreter itself answers when the last flush fails
    return exit_code


def _flush() -> bool:
    try:
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            if stream is not None and not stream.closed:
                stream.flush()
    except Exception:  # noqa: BLE001 (the program may have put anything in their place)
        return False
    return True


def _answer_calls(namespace: dict[str, Any], calls: list[list[Any]]) -> None:
    for name, arguments, keywords in calls:
        try:
            function = _find(namespace, name)
            result = function(
                *[values.decode(one) for one in arguments],
                **{key: values.decode(one) for key, one in keywords.items()},
            )
            payload = json.dumps(values.encode(result), separators=(",", ":"))
        except BaseException as error:  # noqa: BLE001 (the call's result; the next one is made)
            _report(NO_MEMORY if isinstance(error, MemoryError) else RAISED, _describe(error))
        else:
            _report(VALUE, payload)


def _answer_requests(namespace: dict[str, Any]) -> None:
    """Answer what test code elsewhere asks, until it asks no more."""
    answers = Answers(lambda name: _find(namespace, name))
    while (request := wire.read_frame(FURTHER_FD)) is not None:
        try:
            payload = answers.answer(request)
        except MemoryError as error:
            _report(NO_MEMORY, _describe(error))
        except BaseException as error:  # noqa: BLE001 (the answer; the next request may do better)
            _report(RAISED, answers.exception(error))
        else:
            _report(VALUE, payload)


def _ask(request: str) -> tuple[str, str]:
    """Have the program under test asked; returns the answer's tag and payload."""
    _report(REQUEST, request)
    answer = wire.read_frame(FURTHER_FD)
    if answer is None:
        os._exit(0)
    return answer[0], answer[1]


def _find(namespace: dict[str, Any], name: str) -> Any:
    """The function of that name: the module's own, else a method of its class `Solution`."""
    if name not in namespace and "Solution" in namespace:
        return getattr(namespace["Solution"](), name)
    if name not in namespace:
        raise NameError(f"the program does not define {name}")
    return namespace[name]


def _describe(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:500]
    except BaseException:  # noqa: BLE001 (an exception's own __str__ may raise)
        return type(error).__name__


def _report(tag: bytes, text: str = "") -> None:
    body = text.encode("utf-8", "backslashreplace")
    view = memoryview(_REPORT_HEADER.pack(tag, len(body)) + body)
    while view:
        view = view[os.write(REPORT_FD, view) :]
