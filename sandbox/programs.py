"""Test programs: arbitrary test code, with what it takes from the program under test.

The code runs in a container of its own, where the program's functions are stand-ins that hand calls
on. What a stand-in cannot be for the code - a class to test instances against, an object with an
identity - is refused when the code is read.
"""

from __future__ import annotations

import ast
import builtins
import datetime as dt
import symtable
import sys
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from sandbox.errors import BadTest
from sandbox.source import parse, symbol_table

PROGRAM_MODULE = "solution"
CHECK_FUNCTION = "check"
_MODULE_NAMES = {"__name__", "__file__", "__doc__", "__builtins__", "__annotations__"}
_CLASS_TESTS = {"isinstance", "issubclass", "assertIsInstance", "assertNotIsInstance"}
_VALUE_TYPES = (
    str, bytes, bytearray, list, tuple, dict, set, frozenset, int, float, complex, deque, Fraction,
    Decimal, dt.datetime, dt.timedelta,
)  # fmt: skip
_OF_ARRAYS = {
    "shape",
    "dtype",
    "ndim",
    "size",
    "tolist",
    "all",
    "any",
    "sum",
    "astype",
    "T",
    "flatten",
}
_OF_VALUES = {name for kind in _VALUE_TYPES for name in dir(kind)} | _OF_ARRAYS
_RAISES = {"raises", "assertRaises", "assertRaisesRegex", "suppress"}
_IDENTITY_TESTS = {"assertIs", "assertIsNot"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramTest:
    r"""Test code that is run, away from the program.

    It passes when it comes to its end: its module body, a function `check(candidate)`, functions
    named `test...` with the fixtures they name, and `unittest` classes are run, in this order.

    Attributes:
        code: The test code.
        names: What it takes from the program: functions or classes that the program defines.
        function: What `check(candidate)` is given; None where there is no such function.
        setup: Trusted source that runs before the code, with it and away from the program.
        module: The name under which the code may import the program.
        copy_back: Whether lists and dicts that a call has changed are changed for the code too.
            Without it that is so for calls whose value is not used, as in `sort_in_place(xs)`.
        in_place: Lines on which such calls stand.
        classes: Those of `names` whose instances the code asks for attributes that no value has.

    Example:
        >>> read_program("from solution import add\ndef test_add(): assert add(1, 2) == 3").names
        ('add',)
    """

    code: str
    names: tuple[str, ...]
    function: str | None = None
    setup: str = ""
    module: str = PROGRAM_MODULE
    copy_back: bool = False
    in_place: tuple[int, ...] = ()
    classes: tuple[str, ...] = ()


def read_program(
    code: str,
    *,
    function: str | None = None,
    names: Collection[str] = (),
    setup: str = "",
    module: str = PROGRAM_MODULE,
    copy_back: bool = False,
) -> ProgramTest:
    """Check test code without running it, and see what it takes from the program.

    Args:
        code: The test code.
        function: What `check(candidate)` is given, if the code has one.
        names: What the program defines; by default every name that the code uses and does not bind,
            and what it imports from `module`.
        setup: Source that runs before the code.
        module: The name under which the code imports the program.
        copy_back: See `ProgramTest`.

    Raises:
        BadTest: It does not compile, takes nothing from the program, or needs more of it than calls
            and values.
    """
    tree = _parse(code, "code")
    free = _free_names(code) - bound_names(setup, "setup")
    taken = set(names) | ({function} if function else set[str]()) | _imported(tree, module)
    # Sets of tests whose publishers ran them in one namespace with a solution lack these imports.
    forgotten = sorted((free & sys.stdlib_module_names) - taken)
    if not taken:
        taken = {name for name in free.difference(forgotten) if not hasattr(builtins, name)}
    if not taken:
        raise BadTest(
            "code takes nothing from the program: it calls no function that it does not bind. Name "
            "the function that the program defines in `entry_point`"
        )
    for node in ast.walk(tree):
        why = _beyond_values(node, taken)
        if why is not None:
            quoted = " ".join(ast.unparse(node).split())[:200]
            raise BadTest(f"code {why}, but of the program it gets only values: {quoted}")
    return ProgramTest(
        code=code,
        names=tuple(sorted(taken)),
        function=function,
        setup="".join(f"import {name}\n" for name in forgotten) + setup,
        module=module,
        copy_back=copy_back,
        in_place=tuple(sorted(_unused_calls(tree, taken))),
        classes=tuple(sorted(_used_as_classes(tree, taken))),
    )


def _parse(source: str, what: str) -> ast.Module:
    try:
        return parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadTest(f"{what} does not compile: {error}") from error


def _unused_calls(tree: ast.Module, names: Collection[str]) -> set[int]:
    """Lines of calls of the program whose value the code does not use."""
    callees = set(names)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == CHECK_FUNCTION:
            callees.update(one.arg for one in node.args.args)
    lines: set[int] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Call(func=ast.Name(id=name))) if name in callees:
                lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def _used_as_classes(tree: ast.Module, names: Collection[str]) -> set[str]:
    makers: dict[str, str] = {}
    attributes: list[tuple[ast.expr, str]] = []
    for node in ast.walk(tree):
        match node:
            case ast.Assign(
                targets=[ast.Name(id=variable)], value=ast.Call(func=ast.Name(id=name))
            ):
                makers[variable] = name
            case ast.Attribute(value=value, attr=attribute) if attribute not in _OF_VALUES:
                attributes.append((value, attribute))
    used: set[str] = set()
    for value, _ in attributes:
        match value:
            case ast.Call(func=ast.Name(id=name)):
                used.add(name)
            case ast.Name(id=variable):
                used.add(makers.get(variable, ""))
    return used & set(names)


def _imported(tree: ast.Module, module: str) -> set[str]:
    """Names that the code imports from the program's module, as the program calls them."""
    taken: set[str] = set()
    aliases: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=name) if name == module:
                taken.update(one.name for one in node.names)
            case ast.Import():
                aliases.update(one.asname or module for one in node.names if one.name == module)
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in aliases:
                taken.add(attribute)
    return taken - {"*"}


def _free_names(code: str) -> set[str]:
    """Global names that the code uses and never binds."""
    top = symbol_table(code, "code")
    tables, used = [top], set[str]()
    for table in tables:
        tables.extend(table.get_children())
        symbols = [one for one in table.get_symbols() if one.is_referenced()]
        used.update(one.get_name() for one in symbols if one.is_global() or table is top)
    return used - _bound(top) - _MODULE_NAMES


def bound_names(code: str, what: str) -> set[str]:
    """Names that the module body binds.

    Args:
        code: The module's source.
        what: Its name in the error.

    Raises:
        BadTest: It does not compile.
    """
    try:  # no syntax tree is made for that, which for much data would take seconds
        return _bound(symbol_table(code, what))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadTest(f"{what} does not compile: {error}") from error


def _bound(table: symtable.SymbolTable) -> set[str]:
    return {
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
    }


def _beyond_values(node: ast.AST, names: Collection[str]) -> str | None:
    """What a statement asks about identities, or about classes that the program defines."""
    match node:
        case ast.Assert(test=ast.Compare(ops=ops) as test):
            if any(isinstance(op, (ast.Is, ast.IsNot)) for op in ops) and _on_objects(test):
                return "asks whether two values are the same object"
        case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called), args=[*arguments]):
            return _beyond_call(called, arguments, names)
        case ast.ExceptHandler(type=ast.expr() as kind) if _mentions(kind, names):
            return "catches an exception class of the program"
        case ast.ClassDef(bases=bases) if any(_mentions(base, names) for base in bases):
            return "derives from a class of the program"
    return None


def _beyond_call(called: str, arguments: Sequence[ast.expr], names: Collection[str]) -> str | None:
    if called in _IDENTITY_TESTS and not any(map(_is_singleton, arguments)):
        return "asks whether two values are the same object"
    if called in _CLASS_TESTS and any(_mentions(one, names) for one in arguments[1:]):
        return "tests for a class of the program"
    if called in _RAISES and any(_mentions(one, names) for one in arguments[:1]):
        return "expects an exception class of the program"
    return None


def _on_objects(compare: ast.Compare) -> bool:
    return not any(_is_singleton(one) for one in (compare.left, *compare.comparators))


def _is_singleton(node: ast.expr) -> bool:
    """Whether the identity of what the expression gives is a matter of its value."""
    if isinstance(node, ast.Constant):
        return True
    return isinstance(node, ast.Name) and hasattr(builtins, node.id)


def _mentions(node: ast.expr, names: Collection[str]) -> bool:
    return any(isinstance(one, ast.Name) and one.id in names for one in ast.walk(node))
