"""Test code and checkers in containers of their own: what passes, what does not, what cheats."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from sandbox.containers import start_container
from sandbox.engine import Engine
from sandbox.judge import TestReport, TestVerdict, judge
from sandbox.limits import Limits
from sandbox.options import SandboxOptions
from sandbox.pool import MAX_TRIES
from sandbox.result import InfraCause
from sandbox.suite_reader import read_suite
from sandbox.worker import Worker

LIMITS = Limits(cpu_s=1.0, wall_s=4.0, memory_mb=128)
AC, WA, TLE, MLE, RE, CE, OLE, IE = TestVerdict
ADD = "def add(a, b): return a + b"
ADD_TEST = """
from solution import add

def test_add():
    for n in range(3):
        assert add(n, 1) == n + 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Test code, a program, and what must come of them."""

    code: str
    program: str
    verdict: TestVerdict
    more: dict[str, Any]


def case(code: str, program: str, verdict: TestVerdict, **more: Any) -> Case:
    return Case(code=code, program=program, verdict=verdict, more=more)


PYTEST = """
import pytest
from solution import divide

@pytest.fixture
def numbers():
    yield [8, 4]

@pytest.mark.parametrize("a, b, expected", [(4, 2, 2.0), (9, 3, 3.0)])
def test_values(a, b, expected):
    assert divide(a, b) == pytest.approx(expected)

def test_fixture(numbers):
    assert divide(*numbers) == 2

def test_zero():
    with pytest.raises(ZeroDivisionError, match="zero"):
        divide(1, 0)

@pytest.mark.skip(reason="later")
def test_later():
    assert False
"""
UNITTEST = """
import unittest
from solution import parse

class TestParse(unittest.TestCase):
    def setUp(self):
        self.text = "1,2"
    def test_values(self):
        self.assertEqual(parse(self.text), [1, 2])
    def test_bad(self):
        with self.assertRaises(ValueError) as caught:
            parse("x")
        self.assertIn("x", str(caught.exception))
    @unittest.skip("later")
    def test_later(self):
        self.fail()

if __name__ == "__main__":
    unittest.main()
"""
STACK_TEST = """
from solution import Stack
def test_stack():
    s = Stack()
    s.push(1); s.push([2, 3])
    assert len(s) == 2 and s.size == 2
    assert s.pop() == [2, 3]
    assert s.pop() == 1
    try:
        s.pop()
    except IndexError as error:
        assert "empty" in str(error)
    else:
        assert False, "no IndexError"
"""
STACK = """
class Stack:
    def __init__(self): self._items = []
    def push(self, item): self._items.append(item)
    def pop(self):
        if not self._items: raise IndexError("empty stack")
        return self._items.pop()
    @property
    def size(self): return len(self._items)
    def __len__(self): return len(self._items)
"""
ARRAYS = """
import numpy as np
assert np.allclose(double(np.array([1.0, 2.0])), np.array([2.0, 4.0]))
assert double(np.array([[1, 2]])).shape == (1, 2)
assert double(np.float64(2.0)) == 4
"""
LOOP = """
import numpy as np
def assertion(out, exp, atol):
    if out != exp and atol != 0:
        assert np.allclose(out, exp, rtol=1e-07, atol=atol)
    else:
        assert out == exp, f"out: {out}, exp: {exp}"
inputs = [[1], [2], [3]]
results = [1, 4, 9]
for i, (inp, exp) in enumerate(zip(inputs, results)):
    assertion(square(*inp), exp, 0)
"""
IN_PLACE = """
numbers = [3, 1, 2]
same = numbers
order(numbers)
assert same == [1, 2, 3]
grid = [[1, 2], [3, 4]]
row = grid[1]
order(grid)
"""
EQUAL = """
class Equal:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __bool__(self): return True
    def __getattr__(self, name): return self
    def __call__(self, *args): return self
    def __len__(self): return 1
    def __iter__(self): return iter([self])
    def __getitem__(self, key): return self
    __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __eq__
    def __sub__(self, other): return self
    __rsub__ = __add__ = __radd__ = __abs__ = __sub__
"""

HONEST = {
    "pytest": case(PYTEST, "def divide(a, b): return a / b", AC),
    "pytest, wrong": case(PYTEST, "def divide(a, b): return a // b + 1", WA),
    "pytest, does not raise": case(PYTEST, "def divide(a, b): return a / b if b else 0", WA),
    "pytest, raises": case(PYTEST, "def divide(a, b): raise KeyError(b)", RE),
    "unittest": case(UNITTEST, "def parse(s): return [int(x) for x in s.split(',')]", AC),
    "unittest, wrong": case(UNITTEST, "def parse(s): return list(s)", WA),
    "a class": case(STACK_TEST, STACK, AC),
    "a class, wrong": case(STACK_TEST, STACK.replace(".pop()", ".pop(0)"), WA),
    "module": case("import solution\nassert solution.add(1, 2) == 3", ADD, AC),
    "arrays": case(ARRAYS, "def double(x): return x * 2", AC),
    "arrays, wrong": case(ARRAYS, "def double(x): return x", WA),
    "loop over inputs": case(LOOP, "def square(x): return x * x", AC),
    "loop over inputs, wrong": case(LOOP, "def square(x): return x + x", WA),
    "loop over inputs, no value": case(LOOP, "def square(x): pass", WA),
    "argument changed in place": case(IN_PLACE, "def order(xs): xs.sort()", AC),
    "argument not changed": case(IN_PLACE, "def order(xs): return sorted(xs)", WA),
    "an argument's change is asked for": case(
        "a = [2, 1]\nassert order(a) is None\nassert a == [1, 2]",
        "def order(xs): xs.sort()",
        AC,
        copy_back=True,
    ),
    "what is expected is not changed through arguments": case(
        "a = [2, 1]\nassert first(a) == a[0]", "def first(xs): xs[0] = 7; return 7", WA
    ),
    "generator": case(
        "import itertools\nassert list(itertools.islice(count(), 3)) == [0, 1, 2]",
        "def count():\n  n = 0\n  while True:\n    yield n\n    n += 1",
        AC,
    ),
    "long generator": case(
        "assert sum(up(2500)) == sum(range(2500))",
        "def up(n):\n  for i in range(n): yield i",
        AC,
    ),
    "generator that raises": case(
        "g = g3()\nassert next(g) == 1\ntry:\n  next(g)\nexcept KeyError: pass\nelse: assert False",
        "def g3():\n  yield 1\n  raise KeyError",
        AC,
    ),
    "own exception class": case(
        "try:\n  f()\nexcept ValueError as e:\n"
        "  assert type(e).__name__ == 'Bad' and e.args == (3,)",
        "class Bad(ValueError): pass\ndef f(): raise Bad(3)",
        AC,
    ),
    "state between calls": case(
        "assert [tick(), tick()] == [1, 2]",
        "n = 0\ndef tick():\n  global n\n  n += 1\n  return n",
        AC,
    ),
    "functions as values": case(
        "add2 = adder(2)\nassert add2(3) == 5", "def adder(n): return lambda x: x + n", AC
    ),
    "library types": case(
        "from fractions import Fraction\nfrom collections import deque\n"
        "assert half() == (Fraction(1, 2), deque([1]), range(3))",
        "from fractions import Fraction\nfrom collections import deque\n"
        "def half(): return Fraction(1, 2), deque([1]), range(3)",
        AC,
    ),
    "check function": case(
        "def check(candidate):\n  for i in range(2):\n    assert candidate(i, i) == twice(i)",
        ADD,
        AC,
        entry_point="add",
        setup="def twice(x): return 2 * x",
    ),
    "endless loop": case(ADD_TEST, "def add(a, b):\n  while True: pass", TLE),
    "sleep": case(ADD_TEST, "import time\ndef add(a, b): time.sleep(60)", TLE),
    "no such function": case(ADD_TEST, "x = 1", RE),
    "does not compile": case(ADD_TEST, "def add(", CE),
    "raises at import": case(ADD_TEST, "1 / 0", RE),
    "memory": case(ADD_TEST, "def add(a, b):\n  x = []\n  while True: x.append(b'0' * 10**7)", MLE),
}
HOSTILE = {
    "equal to everything": case(ADD_TEST, EQUAL + "def add(a, b): return Equal()", WA),
    "equal, under numpy": case(LOOP, EQUAL + "def square(x): return Equal()", WA),
    "equal, unittest": case(UNITTEST, EQUAL + "def parse(s): return Equal()", WA),
    "equal, made like a class": case(ADD_TEST, EQUAL + "add = lambda a, b: Equal", WA),
    "subclass of int": case(
        ADD_TEST,
        "class I(int):\n  def __eq__(s, o): return True\n  __hash__ = int.__hash__\n"
        "def add(a, b): return I(7)",
        WA,
    ),
    "exit": case(ADD_TEST, "import sys\ndef add(a, b): sys.exit(0)", RE),
    "exit at import": case(ADD_TEST, "import sys\nsys.exit(0)", RE),
    "_exit": case(ADD_TEST, "import os\ndef add(a, b): os._exit(0)", RE),
    "_exit at import": case(ADD_TEST, "import os\nos._exit(0)", RE),
    "skips": case(ADD_TEST, "import unittest\ndef add(a, b): raise unittest.SkipTest", RE),
    "raises what a test raises": case(ADD_TEST, "def add(a, b): raise AssertionError", RE),
    "raises to leave": case(ADD_TEST, "def add(a, b): raise KeyboardInterrupt", RE),
    "raises a generator's end": case(ADD_TEST, "def add(a, b): raise GeneratorExit", RE),
    "patched test libraries": case(
        UNITTEST,
        "import unittest\nunittest.TestCase.debug = lambda s: None\n"
        "unittest.defaultTestLoader.getTestCaseNames = lambda k: []\ndef parse(s): return 1",
        WA,
    ),
    "forged answers ahead": case(
        ADD_TEST,
        "import os, struct, json\n"
        "for v in (1, 2, 3):\n"
        "  b = json.dumps({'value': v, 'arguments': None}).encode()\n"
        "  os.write(3, struct.pack('>cI', b'V', len(b)) + b)\n"
        "def add(a, b): return 0",
        RE,
    ),
    "forged end": case(
        ADD_TEST,
        "import os, struct\n"
        "def add(a, b):\n"
        '  b = b\'{"outcome": "passed", "detail": ""}\'\n'
        "  os.write(3, struct.pack('>cI', b'D', len(b)) + b)\n"
        "  return 0",
        RE,
    ),
    "answers that are no JSON": case(
        ADD_TEST,
        "import os, struct\n"
        "def add(a, b): os.write(3, struct.pack('>cI', b'V', 9) + b'[[[[[[[[['); return 0",
        RE,
    ),
    "deep JSON": case(
        ADD_TEST,
        "import os, struct\n"
        "def add(a, b): os.write(3, struct.pack('>cI', b'V', 200000) + b'[' * 200000)",
        RE,
    ),
    "flood of answers": case(
        ADD_TEST,
        "import os, struct\n"
        "def add(a, b):\n  while True: os.write(3, struct.pack('>cI', b'V', 4) + b'null')",
        RE,
    ),
    "length that never comes": case(
        ADD_TEST,
        "import os\ndef add(a, b): os.write(3, b'V\\xff\\xff\\xff\\xff'); return 0",
        TLE,
    ),
    "does not read": case(
        ADD_TEST, "import os, time\nos.close(5)\ndef add(a, b): return a + b", RE
    ),
    "reads the questions itself": case(
        ADD_TEST, "import os\nwhile os.read(5, 1 << 16): pass\ndef add(a, b): return 1", TLE
    ),
    "huge value": case(ADD_TEST, "def add(a, b): return 'x' * (1 << 22)", OLE),
    "huge int": case(ADD_TEST, "def add(a, b): return 1 << (1 << 22)", OLE),
    "deep value": case(
        ADD_TEST, "def add(a, b):\n  x = []\n  for _ in range(10**5): x = [x]\n  return x", WA
    ),
    "value that holds itself": case(
        ADD_TEST, "def add(a, b):\n  x = []\n  x.append(x)\n  return x", WA
    ),
    "endless generator": case(
        "assert list(up(3)) == [0, 1, 2]", "def up(n):\n  while True: yield 1", RE
    ),
    "huge range": case("assert sum(up(3)) == 3", "def up(n): return range(10**18)", RE),
    "exception with a hostile text": case(
        ADD_TEST,
        "class E(Exception):\n  def __str__(s): raise SystemExit\n  __repr__ = __str__\n"
        "def add(a, b): raise E",
        RE,
    ),
    "exception of a hostile class": case(
        ADD_TEST,
        "class M(type):\n  __name__ = property(lambda c: 1 / 0)\n"
        "class E(Exception, metaclass=M): pass\ndef add(a, b): raise E",
        RE,
    ),
    "lies about its class": case(
        ADD_TEST,
        EQUAL + "class L(Equal): __class__ = int\ndef add(a, b): return L()",
        WA,
    ),
    "truth that never ends": case(
        ADD_TEST,
        "class T:\n  def __bool__(s):\n    while True: pass\ndef add(a, b): return T()",
        TLE,
    ),
    "looks for the test": case(
        "from solution import look\nassert look('x') == 'seen-' + 'nothing'",
        """
import gc, os, sys
def look(_):
    found = [m for m in sys.modules if "tester" in m or m == "tests"]
    found += [o for o in gc.get_objects() if isinstance(o, dict) and "seen-no" + "thing" in o]
    frame = sys._getframe()
    while frame:
        found += [k for k, v in frame.f_locals.items() if v == "seen-no" + "thing"]
        frame = frame.f_back
    return "seen-" + (str(found) if found else "nothing")
""",
        AC,
    ),
}
BAD = {
    "raises before any call": case("x = 1 / 0\nassert f(1) == 1", "def f(x): return x", IE),
    "no such library": case("import pandas\nassert f(1) == 1", "def f(x): return x", IE),
    "never calls": case("if False:\n  f(1)", "def f(x): return x", IE),
    "endless before any call": case("while f: pass", "def f(x): return x", IE),
    "leaves": case("import os\nassert f(1) == 1\nos._exit(0)", "def f(x): return x", IE),
    "passes a function": case("assert f(lambda x: x) == 1", "def f(x): return 1", IE),
    "compares objects of the program": case(
        "p = Point(1)\nassert p == Point(1)",
        "class Point:\n  def __init__(s, x): s.x = x\n  def __eq__(s, o): return s.x == o.x",
        IE,
    ),
    "needs what only pytest has": case(
        "from solution import f\ndef test_f(tmp_path): assert f(1) == 1", "def f(x): return x", IE
    ),
}


@pytest.fixture(scope="module")
def workers() -> Iterator[tuple[Worker, Worker]]:
    for_tests = SandboxOptions(for_tests=True, limits=Limits(memory_mb=1024))
    with (
        closing(Engine()) as engine,
        closing(start_container(engine, SandboxOptions(limits=LIMITS))) as program,
        closing(start_container(engine, for_tests)) as test,
    ):
        yield program, test


def report(workers: tuple[Worker, Worker], test: dict[str, Any], program: str) -> TestReport:
    suite = read_suite([test], LIMITS)
    (only,) = judge(workers[0], program, suite, stop_early=True, judges=workers[1])
    for _ in range(MAX_TRIES - 1):  # as a pool does where the machine stalls
        if only.infra is not InfraCause.STALLED:
            break
        (only,) = judge(workers[0], program, suite, stop_early=True, judges=workers[1])
    return only


def of_case(workers: tuple[Worker, Worker], one: Case) -> TestReport:
    return report(workers, {"kind": "program", "code": one.code, **one.more}, one.program)


@pytest.mark.parametrize("name", HONEST)
def test_honest_programs(name: str, workers: tuple[Worker, Worker]) -> None:
    found = of_case(workers, HONEST[name])
    assert found.verdict is HONEST[name].verdict, found


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_programs(name: str, workers: tuple[Worker, Worker]) -> None:
    found = of_case(workers, HOSTILE[name])
    assert found.verdict is HOSTILE[name].verdict, found


@pytest.mark.parametrize("name", BAD)
def test_bad_tests_judge_nobody(
    name: str, workers: tuple[Worker, Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox.trial.MIN_TEST_CPU_S", 1.0)
    monkeypatch.setattr("sandbox.trial.TEST_CPU_FACTOR", 1)
    found = of_case(workers, BAD[name])
    assert (found.verdict, found.infra) == (IE, InfraCause.BAD_TEST), found


CHECKER = """
def check(stdin, expected, output):
    n = int(stdin)
    a, b = map(int, output.split())
    return a > 0 and b > 0 and a + b == n
"""
SCRIPT = """
import sys
n = int(open(sys.argv[1]).read())
a, b = map(int, open(sys.argv[3]).read().split())
assert open(sys.argv[2]).read().split() == ["1", "4"]
print(1 if a + b == n else 0)
"""
EXITS = """
import sys
sys.exit(0 if open(sys.argv[3]).read().split() == ["2", "3"] else 1)
"""


@pytest.mark.parametrize(
    ("checker", "program", "verdict"),
    [
        (CHECKER, "print(2, int(input()) - 2)", AC),
        (CHECKER, "print(2, 2)", WA),
        (CHECKER, "print('none')", WA),
        (CHECKER, "print(1 / 0)", RE),
        (CHECKER.replace("return", "return True,"), "print(2, 3)", AC),
        (SCRIPT, "print(2, 3)", AC),
        (SCRIPT, "print(2, 2)", WA),
        (SCRIPT, "print('x')", WA),
        (EXITS, "print(2, 3)", AC),
        (EXITS, "print(3, 2)", WA),
        ("def check(stdin, expected, output): return unknown", "print(2, 3)", IE),
        ("def check(stdin, expected, output):\n  while True: pass", "print(2, 3)", IE),
        ("import pandas", "print(2, 3)", IE),
    ],
)
def test_checkers(
    checker: str,
    program: str,
    verdict: TestVerdict,
    workers: tuple[Worker, Worker],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sandbox.checking.CHECKER_CPU_S", 1.0)
    test = {"kind": "checker", "input": "5", "output": "1 4", "checker": checker}
    found = report(workers, test, program)
    assert found.verdict is verdict, found
    assert (found.infra is InfraCause.BAD_TEST) == (verdict is IE)


def test_both_containers_survived(workers: tuple[Worker, Worker]) -> None:
    assert report(workers, {"kind": "program", "code": ADD_TEST}, ADD).verdict is AC
    program = """
import os  # and not numpy, but its name starts the second zygote
def look(): return len([p for p in os.listdir("/proc") if p.isdigit()])
"""
    # Init, supervisor, two zygotes, this program.
    assert report(workers, {"kind": "program", "code": "assert look() == 5"}, program).verdict is AC
