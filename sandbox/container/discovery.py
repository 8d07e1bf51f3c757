"""What there is to run in a module of test code, found as pytest and unittest find it."""

from __future__ import annotations

import asyncio
import dis
import functools
import inspect
import types
import unittest
from collections.abc import Callable, Iterator
from typing import Any

from sandbox.container.pytest_shim import NO_CASES
from sandbox.container.stubs import Unsupported

PREFIX = "test"


def find_tests(code: types.CodeType, module: types.ModuleType) -> Iterator[Callable[[], Any]]:
    """The tests of a module whose body has been run.

    Args:
        code: The module's code.
        module: The module.

    Raises:
        Unsupported: A test needs something that only pytest itself has.
    """
    for name, value in list(vars(module).items()):
        if getattr(value, "__module__", None) != module.__name__:
            continue
        if isinstance(value, type) and issubclass(value, unittest.TestCase):
            yield from _unittest_cases(value)
        elif isinstance(value, type) and name.startswith("Test"):
            yield from _class_cases(value, module)
        elif (
            isinstance(value, types.FunctionType)
            and name.startswith(PREFIX)
            # One that the module's body uses itself may want what only the body gives it.
            and not (_parameters(value) and body_uses(code, name))
        ):
            yield from _function_cases(value, module)


def body_uses(code: types.CodeType, name: str) -> bool:
    """Whether the module's body itself reads a global name."""
    return any(
        one.opname == "LOAD_NAME" and one.argval == name for one in dis.get_instructions(code)
    )


def _unittest_cases(kind: type[unittest.TestCase]) -> Iterator[Callable[[], Any]]:
    yield kind.setUpClass
    for name in unittest.defaultTestLoader.getTestCaseNames(kind):
        # Unlike `run`, this lets exceptions through.
        yield kind(name).debug
    yield kind.tearDownClass


def _class_cases(kind: type, module: types.ModuleType) -> Iterator[Callable[[], Any]]:
    for name in [one for one in dir(kind) if one.startswith(PREFIX)]:
        instance = kind()
        if hasattr(instance, "setup_method"):
            yield instance.setup_method
        yield from _function_cases(getattr(instance, name), module)


def _function_cases(
    function: Callable[..., Any], module: types.ModuleType
) -> Iterator[Callable[[], Any]]:
    for case in getattr(function, "test_cases", NO_CASES):
        yield functools.partial(_run_function, function, case, module)


def _run_function(
    function: Callable[..., Any], case: dict[str, Any], module: types.ModuleType
) -> None:
    if getattr(function, "__unittest_skip__", False):
        raise unittest.SkipTest("marked")
    values = dict(case)
    for name in _parameters(function):
        if name not in values:
            values[name] = _fixture(name, module)
    result = function(**values)
    if inspect.iscoroutine(result):
        asyncio.run(result)


def _fixture(name: str, module: types.ModuleType) -> Any:
    function = vars(module).get(name)
    if function is None or not getattr(function, "is_fixture", False):
        raise Unsupported(f"the test needs the fixture {name}, which the test code does not define")
    value = function(**{one: _fixture(one, module) for one in _parameters(function)})
    # What stands after the `yield` cleans up, and this process is about to end.
    return next(value) if inspect.isgenerator(value) else value


def _parameters(function: Callable[..., Any]) -> list[str]:
    """Names of the parameters that must be given."""
    parameters = inspect.signature(function).parameters.values()
    return [
        one.name
        for one in parameters
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
