"""Reading source without running it, and without the compiler's remarks on its style."""

from __future__ import annotations

import ast
import contextlib
import symtable
import threading
import warnings
from collections.abc import Iterator

_filters = threading.Lock()


def parse(source: str) -> ast.Module:
    r"""The syntax tree of a module.

    Raises:
        SyntaxError: It does not compile; or ValueError, RecursionError or MemoryError.

    Example:
        >>> len(parse("pattern = '\\w+'").body)
        1
    """
    with _no_remarks():
        return ast.parse(source)


def symbol_table(source: str, name: str) -> symtable.SymbolTable:
    """Which names a module binds and uses.

    Args:
        source: The module's source.
        name: Its name in errors.

    Raises:
        SyntaxError: As in `parse`.
    """
    with _no_remarks():
        return symtable.symtable(source, name, "exec")


@contextlib.contextmanager
def _no_remarks() -> Iterator[None]:
    r"""Published code is full of "\w" for "\\w", which is refused where warnings are errors."""
    with _filters, warnings.catch_warnings():  # which change the filters of all threads
        warnings.simplefilter("ignore")
        yield
