"""Evaluating a test's expressions over plain values, without running any code of it.

Only literals, a few pure functions, arithmetic and comparisons are known; an expression with
anything else is refused when the test is read. What a program returned is a plain value like any
other, except that operations whose cost or size it could drive up (`*`, `**`, `<<`, `%` on text,
...) are refused on it.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from sandbox.container.hashing import make_dict, make_frozenset, make_set
from sandbox.container.values import Opaque


class Unsupported(Exception):
    """The expression has a part that is not known here."""


def _identical(left: Any, right: Any) -> bool:
    """`is`, for values that came from another process: meant for None, True and False."""
    return type(left) is type(right) and bool(left == right)


def _dict(items: Any = (), /, **keywords: Any) -> dict[Any, Any]:
    """As `dict`, of what a program may have returned."""
    return make_dict(items.items() if isinstance(items, dict) else items) | keywords


_BUILTINS = (
    abs, all, any, bool, complex, dict, enumerate, float, frozenset, int, isinstance, len, list,
    max, min, range, reversed, round, set, sorted, str, sum, tuple, type, zip,
)  # fmt: skip
_OF_MATH = (
    math.isclose, math.isnan, math.isinf, math.sqrt, math.floor, math.ceil, math.fabs,
)  # fmt: skip
FUNCTIONS: dict[str, Callable[..., Any]] = {one.__name__: one for one in _BUILTINS} | {
    f"math.{one.__name__}": one for one in _OF_MATH
}
FUNCTIONS |= {"set": make_set, "frozenset": make_frozenset, "dict": _dict}
CONSTANTS: dict[str, Any] = {
    "math.pi": math.pi,
    "math.e": math.e,
    "math.inf": math.inf,
    "math.nan": math.nan,
}
TYPES: dict[str, type] = {
    one.__name__: one
    for one in (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset)
}
# On what a program returned, these could be made to cost time or memory without limit.
_NOT_ON_RESULTS = ("range", "str", "int")
_NUM_ARGUMENTS = {"isinstance": 2, "type": 1}

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
_COSTLY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Mult: operator.mul,
    ast.Pow: operator.pow,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Invert: operator.invert,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, container: item in container,
    ast.NotIn: lambda item, container: item not in container,
    ast.Is: _identical,
    ast.IsNot: lambda left, right: not _identical(left, right),
}


_PURE_NODES = (
    ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.UnaryOp, ast.BoolOp, ast.Compare,
    ast.Subscript, ast.Slice, ast.Starred,
)  # fmt: skip


def require_supported(node: ast.expr, names: Mapping[str, Any], known: Collection[int]) -> None:
    """Check that an `Evaluator` knows every part of an expression, even if it never comes to it.

    Args:
        node: The expression.
        names: The names that will have values.
        known: Nodes, by `id`, that will have values.

    Raises:
        Unsupported: It has a part that is not known here.
    """
    if id(node) in known:
        return
    children: Iterable[ast.AST] = ast.iter_child_nodes(node)
    match node:
        case ast.Name(id=name):
            supported = name in names or name in TYPES
        case ast.Attribute():
            supported, children = ast.unparse(node) in CONSTANTS, ()
        case ast.BinOp(op=op):
            costly = type(op) in _COSTLY and _holds(node, known)
            supported = not costly and type(op) in {**_BINARY, **_COSTLY}
        case ast.Call(func=func):
            name = ast.unparse(func)
            children = [*node.args, *(keyword.value for keyword in node.keywords)]
            supported = _supported_call(node, name, on_results=_holds(node, known))
        case _:
            supported = isinstance(node, _PURE_NODES)
    if not supported:
        raise Unsupported(ast.unparse(node))
    for child in children:
        if isinstance(child, ast.expr):
            require_supported(child, names, known)


def _supported_call(node: ast.Call, name: str, *, on_results: bool) -> bool:
    if any(keyword.arg is None for keyword in node.keywords):
        return False
    if len(node.args) != _NUM_ARGUMENTS.get(name, len(node.args)):
        return False
    return name in FUNCTIONS and not (on_results and name in _NOT_ON_RESULTS)


def _holds(node: ast.AST, known: Collection[int]) -> bool:
    return any(id(one) in known for one in ast.walk(node))


def truth(value: Any) -> bool:
    """Truth as the program's own interpreter saw it."""
    return bool(value.truth) if isinstance(value, Opaque) else bool(value)


class Evaluator:
    """Evaluates expressions that have passed `require_supported`.

    Args:
        names: Values of names.
        known: Values of nodes, by `id`: the calls of the tested function.
    """

    def __init__(self, names: Mapping[str, Any], known: Mapping[int, Any]) -> None:
        self._names = names
        self._known = known

    def value(self, node: ast.expr) -> Any:
        """The node's value; raises what Python itself raises for such values."""
        if id(node) in self._known:
            return self._known[id(node)]
        return getattr(self, f"_{type(node).__name__.lower()}")(node)

    def _constant(self, node: ast.Constant) -> Any:
        return node.value

    def _name(self, node: ast.Name) -> Any:
        return self._names[node.id] if node.id in self._names else TYPES[node.id]

    def _attribute(self, node: ast.Attribute) -> Any:
        return CONSTANTS[ast.unparse(node)]

    def _list(self, node: ast.List) -> list[Any]:
        return self._items(node.elts)

    def _tuple(self, node: ast.Tuple) -> tuple[Any, ...]:
        return tuple(self._items(node.elts))

    def _set(self, node: ast.Set) -> set[Any]:
        return make_set(self._items(node.elts))

    def _dict(self, node: ast.Dict) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for key, item in zip(node.keys, node.values, strict=True):
            if key is None:
                result.update(self.value(item))
            else:
                result[self.value(key)] = self.value(item)
        return result

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        operand = self.value(node.operand)
        return (
            not truth(operand) if isinstance(node.op, ast.Not) else _UNARY[type(node.op)](operand)
        )

    def _binop(self, node: ast.BinOp) -> Any:
        operate = _BINARY.get(type(node.op)) or _COSTLY[type(node.op)]
        return operate(self.value(node.left), self.value(node.right))

    def _boolop(self, node: ast.BoolOp) -> Any:
        stop_at = isinstance(node.op, ast.Or)
        value: Any = None
        for operand in node.values:
            value = self.value(operand)
            if truth(value) is stop_at:
                return value
        return value

    def _compare(self, node: ast.Compare) -> bool:
        left = self.value(node.left)
        for kind, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.value(right_node)
            if not _COMPARE[type(kind)](left, right):
                return False
            left = right
        return True

    def _call(self, node: ast.Call) -> Any:
        keywords = {str(one.arg): self.value(one.value) for one in node.keywords}
        return FUNCTIONS[ast.unparse(node.func)](*self._items(node.args), **keywords)

    def _subscript(self, node: ast.Subscript) -> Any:
        return self.value(node.value)[self.value(node.slice)]

    def _slice(self, node: ast.Slice) -> slice:
        ends = (node.lower, node.upper, node.step)
        return slice(*[None if end is None else self.value(end) for end in ends])

    def _items(self, nodes: list[ast.expr]) -> list[Any]:
        items: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                items.extend(self.value(node.value))
            else:
                items.append(self.value(node))
        return items
