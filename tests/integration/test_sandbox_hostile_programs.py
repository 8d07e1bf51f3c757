"""Programs that cheat, hang, break out or take others down, on one container that survives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest

from sandbox.docker_pool import check_engine, start_worker
from sandbox.engine import Engine
from sandbox.judge import TestVerdict, judge
from sandbox.limits import Limits
from sandbox.options import SandboxOptions
from sandbox.result import ExecStatus, Flag, Job
from sandbox.suite import Suite
from sandbox.suite_reader import read_suite
from sandbox.worker import Worker

LIMITS = Limits(cpu_s=1.0, wall_s=4.0, memory_mb=128)
AC, WA, TLE, MLE, RE, CE, OLE = (
    TestVerdict.AC,
    TestVerdict.WA,
    TestVerdict.TLE,
    TestVerdict.MLE,
    TestVerdict.RE,
    TestVerdict.CE,
    TestVerdict.OLE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A program that reads 41, should print 42, and what must become of it."""

    program: str
    verdicts: set[TestVerdict]
    flagged: bool = False


def case(program: str, *verdicts: TestVerdict, flagged: bool = False) -> Case:
    return Case(program=program, verdicts=set(verdicts), flagged=flagged)


CASES = {
    "correct": case("print(int(input()) + 1)", AC),
    "wrong": case("print(43)", WA),
    "sys.exit(0)": case("import sys; sys.exit(0)", WA),
    "os._exit(0)": case("import os; os._exit(0)", WA),
    "raise SystemExit": case("raise SystemExit", WA),
    "kills itself": case("import os; os.kill(os.getpid(), 9)", RE),
    "prints without flush": case("import os; print(42); os._exit(0)", WA),
    "right with exit code 3": case("print(42); raise SystemExit(3)", RE),
    "exit code 256 is 0": case("import sys; print(42); sys.exit(256)", AC),
    "exit with text": case("import sys; print(42); sys.exit('no')", RE),
    "exit code of a failed start": case("import os; print(42, flush=True); os._exit(70)", RE),
    "syntax error": case("print(42", CE),
    "nested parentheses": case("(" * 5000 + "1" + ")" * 5000, CE),
    "null byte": case("print(42)\0", CE),
    "empty": case("", WA),
    "endless loop": case("while True: pass", TLE),
    "sleeps": case("import time; time.sleep(1e6)", TLE),
    "stops itself": case("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", TLE),
    "ignores signals": case(
        """
import signal
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True: pass
""",
        TLE,
    ),
    "input past the end": case("input(); input()", RE),
    "fork bomb": case("import os\nwhile True:\n  try: os.fork()\n  except OSError: pass", TLE),
    "thread bomb": case(
        """
import threading, time
while True:
    try: threading.Thread(target=time.sleep, args=(99,), daemon=True).start()
    except RuntimeError: pass
""",
        TLE,
        RE,
    ),
    "daemon holds stdout": case(
        """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: time.sleep(60)
    os._exit(0)
os.wait()
print(42)
""",
        AC,
        flagged=True,
    ),
    "child writes on": case(
        """
import os, time
print(42, flush=True)
if os.fork() == 0:
    while True:
        os.write(1, b"x")
time.sleep(0.2)
""",
        WA,
        OLE,
        flagged=False,
    ),
    "memory bomb": case("x = []\nwhile True: x.append(bytearray(1 << 24))", MLE),
    "memory of many children": case(
        """
import os, time
for _ in range(8):
    if os.fork() == 0:
        x = bytearray(100 << 20)
        for i in range(0, len(x), 4096): x[i] = 1
        time.sleep(60)
time.sleep(60)
""",
        MLE,
        RE,
        TLE,
    ),
    "huge allocation refused": case(
        """
try: bytearray(1 << 40)
except MemoryError: print(42)
""",
        AC,
    ),
    "output flood": case("while True: print('x' * 10000)", OLE),
    "error output flood": case(
        "import sys\nfor _ in range(2000): sys.stderr.write('x' * 10000)\nprint(42)", AC
    ),
    "endless recursion": case("def f(): return f()\nf()", RE),
    "deep recursion": case(
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(): return f() + 1\nf()", RE, MLE, TLE
    ),
    "deep C stack": case(
        """
import sys
sys.setrecursionlimit(10**9)
x = []
for _ in range(10**5): x = [x]
repr(x)
""",
        RE,
        MLE,
        TLE,
    ),
    "huge power": case("print(len(bin(2 ** (10 ** 10))))", TLE, MLE, RE),
    "honest large number": case("print(42 if len(str(10 ** 5000)) == 5001 else 0)", AC),
    "kill everything": case(
        """
import os
try: os.kill(-1, 9)
except OSError: pass
for pid in range(1, 200):
    if pid != os.getpid():
        try: os.kill(pid, 9)
        except OSError: pass
print(42)
""",
        AC,
    ),
    "reads other processes": case(
        """
import os
found = []
for pid in [p for p in os.listdir("/proc") if p.isdigit() and int(p) != os.getpid()]:
    for name in ("mem", "environ", "maps", "stack", "auxv"):
        try: open(f"/proc/{pid}/{name}", "rb").read(1); found.append((pid, name))
        except OSError: pass
    try: os.listdir(f"/proc/{pid}/fd"); found.append((pid, "fd"))
    except OSError: pass
print(found or 42)
""",
        AC,
    ),
    "inherited descriptors": case(
        """
import os
kinds = {fd: os.readlink(f"/proc/self/fd/{fd}") for fd in map(int, os.listdir("/proc/self/fd"))
         if os.path.exists(f"/proc/self/fd/{fd}") or fd < 4}
extra = [k for fd, k in kinds.items() if fd > 3 and "/proc" not in k]
print(extra or 42)
""",
        AC,
    ),
    "writes to descriptors of others": case(
        """
import os
hits = []
for pid in [p for p in os.listdir("/proc") if p.isdigit() and int(p) != os.getpid()]:
    for fd in range(16):
        try: os.open(f"/proc/{pid}/fd/{fd}", os.O_WRONLY); hits.append((pid, fd))
        except OSError: pass
print(hits or 42)
""",
        AC,
    ),
    "writable places": case(
        """
import os
found = []
for folder, names, _ in os.walk("/"):
    names[:] = [n for n in names if os.path.join(folder, n) != "/proc"]
    try:
        with open(os.path.join(folder, "probe"), "w") as f: f.write("x")
        found.append(folder)
    except OSError: pass
print(found or 42)
""",
        AC,
    ),
    "network": case(
        """
import socket
found = []
for family, kind in ((2, 1), (2, 2), (10, 1), (1, 1), (16, 3), (17, 3)):
    try: socket.socket(family, kind); found.append(family)
    except OSError: pass
print(found or 42)
""",
        AC,
    ),
    "docker socket": case(
        """
import os
print(42 if not any(map(os.path.exists, ("/var/run/docker.sock", "/run/docker.sock"))) else 0)
""",
        AC,
    ),
    "privileged calls": case(
        """
import ctypes, os, resource
libc = ctypes.CDLL(None, use_errno=True)
allowed = []
def attempt(name, *args):
    if getattr(libc, name)(*args) != -1: allowed.append(name)
attempt("unshare", 0x10000000)
attempt("unshare", 0x00020000)
attempt("mount", b"none", b"/tmp", b"tmpfs", 0, None)
attempt("ptrace", 16, os.getppid(), 0, 0)
attempt("clock_settime", 0, (ctypes.c_long * 2)(1, 1))
attempt("setuid", 0)
attempt("setgid", 0)
attempt("chroot", b"/")
attempt("sethostname", b"x", 1)
attempt("shmget", 0, 4096, 0o1666)
attempt("msgget", 0, 0o1666)
attempt("semget", 0, 1, 0o1666)
attempt("process_vm_readv", os.getppid(), None, 0, None, 0, 0)
for number in (248, 321, 298, 323, 425, 272, 308, 304, 101):  # add_key bpf perf userfaultfd ...
    if libc.syscall(number, 0, 0, 0, 0, 0) != -1: allowed.append(number)
for kind in (resource.RLIMIT_AS, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE):
    try: resource.setrlimit(kind, (resource.RLIM_INFINITY,) * 2); allowed.append(kind)
    except (OSError, ValueError): pass
print(allowed or 42)
""",
        AC,
    ),
    "message queue": case(
        """
import ctypes
libc = ctypes.CDLL(None)
print(42 if libc.mq_open(b"/q", 0o102, 0o600, None) == -1 else 0)
try: open("/dev/mqueue/x", "w"); print("made")
except OSError: pass
""",
        AC,
    ),
    "exit function prints": case("import atexit\natexit.register(print, 99)\nprint(42)", WA),
    "honest buffered output": case(
        """
import atexit, io, sys
sys.stdout = io.StringIO()
atexit.register(lambda: sys.__stdout__.write(sys.stdout.getvalue()))
print(42)
""",
        AC,
    ),
    "forged report": case('print(\'AC PASSED {"r":[{"rc":0}]}\')', WA),
    "forged frames": case(
        """
import os, struct
for body in (b'{"seq":1,"runs":[]}', b'S', b'V42'):
    for fd in (1, 3):
        try: os.write(fd, struct.pack(">I", len(body)) + body)
        except OSError: pass
print(42)
""",
        WA,
        OLE,
    ),
    "report pipe flood": case(
        "import os\nwhile True: os.write(3, b'V' + b'\\0\\0\\0\\1x' * 1000)", OLE
    ),
    "huge length prefix": case("import os\nos.write(3, b'V\\xff\\xff\\xff\\xff')\nprint(42)", AC),
    "file over stdout, never closed": case("out = open(1, 'w')\nout.write('42')", AC),
    "closed stdout": case("import os\nos.write(1, b'42')\nimport sys; sys.stdout.close()", AC),
    "stdout replaced by nonsense": case("import sys; print(42); sys.stdout = 3", RE),
    "late thread": case(
        """
import threading, time
threading.Thread(target=lambda: (time.sleep(0.1), print(42))).start()
""",
        AC,
    ),
    "honest thread with a large stack": case(
        """
import sys, threading
sys.setrecursionlimit(1 << 20)
threading.stack_size(64 << 20)
def f(n): return 0 if n == 0 else f(n - 1)
t = threading.Thread(target=lambda: (f(20000), print(int(input()) + 1)))
t.start(); t.join()
""",
        AC,
    ),
    "busy thread": case(
        "import threading\ndef spin():\n  while True: pass\nthreading.Thread(target=spin).start()",
        TLE,
    ),
    "buffered readline": case("import sys; print(int(sys.stdin.buffer.readline()) + 1)", AC),
    "open(0)": case("print(int(open(0).read()) + 1)", AC),
    "/dev/stdin and /dev/stdout": case(
        "x = int(open('/dev/stdin').read()) + 1\nopen('/dev/stdout', 'w').write(str(x))", AC
    ),
    "os.read": case("import os; print(int(os.read(0, 100)) + 1)", AC),
    "binary garbage": case("import os; os.write(1, bytes(range(256)) * 10)", WA),
    "lone surrogate": case("print('\\udc80')", WA),
    "patches builtins": case("import builtins\nbuiltins.print = lambda *a: None\nprint(42)", WA),
    "builtins are whole again": case("print(42)", AC),
    "null pointer": case("import ctypes; ctypes.string_at(0)", RE),
    "new interpreter": case(
        """
import os
os.execv("/proc/self/exe", ["python3", "-c", "print(int(input()) + 1)"])
""",
        AC,
    ),
    "subprocess": case(
        """
import subprocess, sys
print(subprocess.check_output([sys.executable, "-c", "print(42)"], text=True).strip())
""",
        AC,
    ),
    "asks for a retry": case("print('Resource temporarily unavailable'); raise SystemExit(1)", RE),
    "looks for the harness": case(
        """
import sys
print([m for m in sys.modules if "sandbox" in m] or 42)
""",
        AC,
    ),
    "shared memory": case(
        """
import ctypes
libc = ctypes.CDLL(None)
print(42 if libc.shmget(7, 4096, 0o1666) == -1 else 43)
""",
        AC,
    ),
    "semaphores": case(
        """
import ctypes
libc = ctypes.CDLL(None)
print(42 if libc.semget(7, 1, 0o1666) == -1 else 43)
""",
        AC,
    ),
    "raises its own limits": case(
        """
import resource
for kind in (resource.RLIMIT_CPU, resource.RLIMIT_AS, resource.RLIMIT_NPROC):
    try: resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (ValueError, OSError): pass
while True: pass
""",
        TLE,
    ),
    "aborts": case("import os; print(42, flush=True); os.abort()", RE),
    "ends itself by a timer": case(
        "import signal; signal.setitimer(signal.ITIMER_REAL, 0.1)\nwhile True: pass", RE
    ),
    "opens files without end": case(
        """
held = []
try:
    while True: held.append(open("/dev/null"))
except OSError:
    held.clear()
print(42)
""",
        AC,
    ),
    "equal to everything": case(
        """
class E(str):
    __eq__ = lambda *_: True
    __hash__ = lambda *_: 0
print(E("43"))
""",
        WA,
    ),
    "both answers": case("print(42); print(43)", WA),
    "walks the frames": case(
        """
import sys
frame, names = sys._getframe(), set()
while frame:
    names |= {str(v) for v in frame.f_locals.values()} & {"42", "42\\n"}
    frame = frame.f_back
print(names or 42)
""",
        AC,
    ),
    "leaves a class behind": case(
        "import json\njson.dumps = lambda *a, **k: '42'\njson.loads = json.dumps\nprint(42)", AC
    ),
    "numpy": case("import numpy as np; print(int(np.ones(21).sum() * 2))", AC),
    "same set order each time": case("print(42 if hash('verdict') == hash('verdict') else 0)", AC),
    "main guard": case("if __name__ == '__main__': print(42)", AC),
    "dataclass and annotations": case(
        """
from __future__ import annotations
from dataclasses import dataclass
@dataclass
class A:
    x: int
print(A(42).x)
""",
        AC,
    ),
    "pickles its own class": case(
        """
import pickle
class A: pass
pickle.loads(pickle.dumps(A()))
print(42)
""",
        AC,
    ),
}


def start() -> Iterator[Worker]:
    options = SandboxOptions(limits=LIMITS)
    with closing(Engine()) as engine:
        check_engine(engine, options)
        with closing(start_worker(engine, options)) as one:
            yield one


worker = pytest.fixture(start, scope="module", name="worker")
fresh_worker = pytest.fixture(start, name="fresh_worker")


def suite() -> Suite:
    return read_suite([{"kind": "stdio", "input": "41\n", "output": "42\n"}], LIMITS)


@pytest.mark.parametrize("name", CASES)
def test_program_gets_its_verdict(name: str, worker: Worker) -> None:
    expected = CASES[name]
    (report,) = judge(worker, expected.program, suite(), stop_early=True)
    assert report.verdict in expected.verdicts, report
    assert (Flag.SV in report.flags) >= expected.flagged, report


def test_the_container_has_nothing_left_over(worker: Worker) -> None:
    """After all of the above: init, supervisor, two zygotes, this program, and its files."""
    program = """
import os  # and not numpy, but its name starts the second zygote
print(len([p for p in os.listdir("/proc") if p.isdigit()]), len(os.listdir("/proc/self/fd")))
"""
    first, second = judge(
        worker,
        program,
        read_suite([{"kind": "stdio", "input": "", "output": "5 5"}] * 2, LIMITS),
        stop_early=False,
    )
    assert (first.verdict, second.verdict) == (AC, AC), first


SCAN = """
import ctypes
codes, copies = {codes!r}, {copies}
held = [bytes(codes) for _ in range(copies)]
found = 0  # {remark}
for line in open("/proc/self/maps"):
    ends, rights, _, _, _, *name = line.split()
    if "r" in rights and name[:1] not in (["[vvar]"], ["[vsyscall]"], ["[vvar_vclock]"]):
        start, end = (int(x, 16) for x in ends.split("-"))
        block = ctypes.string_at(start, end - start)
        found += block.count(bytes(codes))
        del block
print(found)
"""


def count_in_memory(worker: Worker, text: str, *, copies: int = 0, remark: str = "") -> int:
    """How often a text lies in the memory of a program that is told its character codes only."""
    program = SCAN.format(codes=list(map(ord, text)), copies=copies, remark=remark)
    (result,) = worker.run(Job(program=program, inputs=(b"",), limits=LIMITS))
    assert result.status is ExecStatus.OK, result
    return int(result.stdout)


def test_a_program_finds_no_trace_of_earlier_ones(worker: Worker) -> None:
    marker = "qxj-zvk-" * 8
    unused = marker[::-1]
    for _ in range(3):
        program = f"secret = {marker!r}; print(42)"
        assert judge(worker, program, suite(), stop_early=True)[0].verdict is AC
    # The search itself makes a few copies: as many of a text that was never there.
    assert count_in_memory(worker, marker) == count_in_memory(worker, unused)
    assert count_in_memory(worker, unused, copies=5) >= count_in_memory(worker, unused) + 5


def test_libraries_that_are_loaded_later_bring_no_trace_of_earlier_programs(
    fresh_worker: Worker,
) -> None:
    marker = "qxj-zvk-" * 8
    unused = marker[::-1]
    program = f"secret = {marker!r}; print(42)"
    assert judge(fresh_worker, program, suite(), stop_early=True)[0].verdict is AC
    found = count_in_memory(fresh_worker, marker, remark="numpy")
    assert found == count_in_memory(fresh_worker, unused, remark="numpy")


def test_a_container_that_has_not_loaded_them_is_small(fresh_worker: Worker) -> None:
    program = """
import pathlib
groups = pathlib.Path("/sys/fs/cgroup")
files = [groups / "memory.stat", groups / "memory" / "memory.stat"]
text = next(one for one in files if one.exists()).read_text()
figures = dict(line.split() for line in text.splitlines())
print(figures.get("rss") or figures["anon"])
"""
    (result,) = fresh_worker.run(Job(program=program, inputs=(b"",), limits=LIMITS))
    held = int(result.stdout) / 2**20
    assert 5 < held < 15, held  # this program with it
