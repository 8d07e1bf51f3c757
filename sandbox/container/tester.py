"""Running test code: what it holds is found, run, and what came of it is put in one word.

This process holds tests and expected values, and never any code of the program under test.
"""

from __future__ import annotations

import contextlib
import json
import random
import sys
import types
import unittest
from collections.abc import Callable
from typing import Any

from sandbox.container import pytest_shim
from sandbox.container.discovery import body_uses, find_tests
from sandbox.container.link import TEST_FILE, Broken, Link
from sandbox.container.stubs import Stub, Unsupported

SETUP_FILE = "setup.py"
MODULE_NAME = "tests"
CHECK_FUNCTION = "check"

# What became of the test.
PASSED = "passed"
FAILED = "failed"
RAISED = "raised"
UNREADABLE = "unreadable"
BAD_TEST = "bad test"


def run(spec: dict[str, Any], ask: Callable[[str], tuple[str, str]]) -> str:
    """Run a test program; returns its outcome and a detail, as JSON.

    Args:
        spec: `code`, `setup`, `names`, `function`, `module`, `in_place`, `copy_back`, `classes`;
            see `sandbox.programs.ProgramTest`.
        ask: Sends a request to the program under test and waits for the answer.
    """
    link = Link(ask, **{key: spec[key] for key in ("in_place", "copy_back", "classes")})
    try:
        _run_all(spec, link)
    except BaseException as error:  # noqa: BLE001 (told apart below; this is the process's end)
        outcome, detail = _outcome(link.fatal or error, link)
    else:
        outcome, detail = PASSED, ""
        if link.fatal is not None:
            outcome, detail = _outcome(link.fatal, link)
        elif not link.num_answers:
            outcome, detail = BAD_TEST, "the test code never calls the program"
    return json.dumps({"outcome": outcome, "detail": detail[:500]})


def _outcome(error: BaseException, link: Link) -> tuple[str, str]:
    detail = f"{type(error).__name__}: {_text(error)}".rstrip(": ")
    if isinstance(error, Unsupported):
        return BAD_TEST, str(error)
    if isinstance(error, Broken):
        return UNREADABLE, str(error)
    if error is link.raised:
        return RAISED, detail
    if isinstance(error, AssertionError):
        return FAILED, _text(error) or _line(error)
    # Before the program has said anything, and for modules that are not there, it cannot be at
    # fault; afterwards, an error is what the test makes of a value that it did not expect.
    if not link.num_answers or isinstance(error, (ImportError, SystemExit, KeyboardInterrupt)):
        return BAD_TEST, f"the test code itself raised {detail}"
    return FAILED, f"the test code raised {detail}"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 (a test's own exception class)
        return ""


def _line(error: BaseException) -> str:
    """Where an assert without a message stands."""
    frames, line = error.__traceback__, 0
    while frames is not None:
        if frames.tb_frame.f_code.co_filename == TEST_FILE:
            line = frames.tb_lineno
        frames = frames.tb_next
    return f"the assert in line {line} of the test code does not hold"


def _run_all(spec: dict[str, Any], link: Link) -> None:
    random.seed(0)  # noqa: TID251 (its own process; the same program must get the same verdict)
    stubs = {name: Stub(link, name) for name in spec["names"]}
    module = types.ModuleType(MODULE_NAME)
    sys.modules[MODULE_NAME] = module
    sys.modules["pytest"] = pytest_shim.module()
    sys.modules[spec["module"]] = _solution(spec["module"], stubs, link)
    namespace = module.__dict__
    setup = compile(spec["setup"], SETUP_FILE, "exec", dont_inherit=True)
    code = compile(spec["code"], TEST_FILE, "exec", dont_inherit=True)
    exec(setup, namespace)  # noqa: S102 (trusted code of the data set, away from the program)
    namespace.update(stubs)
    exec(code, namespace)  # noqa: S102 (as above)
    if CHECK_FUNCTION in namespace and spec["function"] and not body_uses(code, CHECK_FUNCTION):
        namespace[CHECK_FUNCTION](stubs[spec["function"]])
    for test in find_tests(code, module):
        with contextlib.suppress(unittest.SkipTest):
            test()


def _solution(name: str, stubs: dict[str, Stub], link: Link) -> types.ModuleType:
    """The program as a module, for test code that imports it."""
    solution = types.ModuleType(name)

    def find(attribute: str) -> Stub:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return Stub(link, attribute)

    solution.__dict__.update(stubs, __getattr__=find, __all__=list(stubs))
    return solution
