"""Find a user's function by `path/to/file.py:function` or `package.module:function`.

`trl:`, `verl:` and `rubric:` before either take a function written for another trainer.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from verifiers.errors import UserError

ADAPTERS = {
    "trl": "verifiers.adapters.trl:adapt_trl_reward",
    "verl": "verifiers.adapters.verl:adapt_compute_score",
    "rubric": "verifiers.adapters.rubrics:adapt_rubric_function",
}


def load_function(spec: str) -> Callable[..., Any]:
    """Import the function that a plug-in spec names.

    A file is imported once in a process, under a name made from its path; modules are also looked
    for in the current directory.

    Raises:
        UserError: The file, module or function does not exist, or importing it fails.
    """
    host, _, inner = spec.partition(":")
    if host in ADAPTERS and ":" in inner:
        module, _, adapter = ADAPTERS[host].partition(":")
        return getattr(importlib.import_module(module), adapter)(load_function(inner), spec)
    location, _, name = spec.rpartition(":")
    if not location or not name:
        raise UserError(
            f"verifier {spec!r} is not of the form `path/to/file.py:function` or "
            "`package.module:function`"
        )
    module = _load_file(location) if location.endswith(".py") else _load_module(location)
    function = getattr(module, name, None)
    if not callable(function):
        functions = sorted(
            key for key, value in vars(module).items() if callable(value) and key[0] != "_"
        )
        raise UserError(
            f"{location} has no function {name!r}; it defines {', '.join(functions) or 'none'}"
        )
    return function


def name_function(function: Callable[..., Any]) -> str:
    """The spec by which other processes find a function: the inverse of `load_function`.

    Raises:
        UserError: They cannot: it has no name in its module, or was typed at a prompt.

    Example:
        >>> name_function(load_function)
        'verifiers.callables:load_function'
    """
    module, name = function.__module__, function.__qualname__
    cure = (
        "write it into a file, with `def` at the file's outermost level, and import it from there"
    )
    if not name.isidentifier():
        raise UserError(
            f"{name} of {module} cannot be a verifier, because the processes that judge look it up"
            f" by its name in its file: {cure}"
        )
    if module != "__main__":
        return f"{module}:{name}"
    file = getattr(sys.modules[module], "__file__", None)
    if file is None or not str(file).endswith(".py"):
        raise UserError(
            f"{name} was typed in where no other process can read it, so it cannot be a verifier:"
            f" {cure}"
        )
    return f"{Path(file).resolve()}:{name}"


def waits(spec: str) -> bool:
    """Whether the function that a plug-in spec names is an `async def`, the user's own one.

    Raises:
        UserError: As `load_function`.
    """
    host, _, inner = spec.partition(":")
    if host in ADAPTERS and ":" in inner:
        return waits(inner)
    function = load_function(spec)
    return any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))


def _load_file(location: str) -> ModuleType:
    path = Path(location).expanduser().resolve()
    if not path.is_file():
        raise UserError(
            f"verifier file {location!r} does not exist (looked for {path}); paths are relative "
            "to the "
            "directory in which the command runs"
        )
    name = f"verigrad_plugin_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    module_spec = importlib.util.spec_from_file_location(name, path)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = (
        module  # first, as the import system does: dataclasses and pickle look it up
    )
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise UserError(f"importing {path} failed: {type(error).__name__}: {error}") from error
    return module


def _load_module(location: str) -> ModuleType:
    directory = str(Path.cwd())
    if directory not in sys.path:
        sys.path.append(directory)  # last, so that nothing installed can be shadowed by it
    try:
        return importlib.import_module(location)
    except Exception as error:
        raise UserError(
            f"importing the module {location!r} failed: {type(error).__name__}: {error}"
        ) from error
