"""Assert statements as calls, which the program makes, and a condition, evaluated here.

No test code is run, so there is nothing that a program could redefine, skip or leave early.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sandbox.errors import BadTest
from sandbox.expressions import Evaluator, Unsupported, require_supported, truth
from sandbox.programs import PROGRAM_MODULE
from sandbox.result import Call
from sandbox.source import parse

CHECK_FUNCTION = "check"
TEST_PREFIX = "test"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertTest:
    """One assert statement.

    Attributes:
        source: As it was written.
        calls: What the program has to compute.
        condition: The asserted expression.
        nodes: For each call, the nodes of `condition` that stand for it.
        names: Values of the names that the condition uses.
    """

    source: str
    calls: tuple[Call, ...]
    condition: ast.expr
    nodes: tuple[int, ...]
    names: dict[str, Any]

    def holds(self, values: Sequence[Any]) -> bool:
        """Whether the condition is true for what the calls returned.

        Raises:
            Exception: What the condition raises on such values, as the assert statement itself
                would have.
        """
        known = dict(zip(self.nodes, values, strict=True))
        return truth(Evaluator(self.names, known).value(self.condition))


def read_asserts(
    code: str, *, function: str | None = None, foreign: Collection[str] = ()
) -> tuple[AssertTest, ...]:
    """Read test code that consists of asserts on one function's values.

    Understood are `assert` statements, assignments, imports, and a function `check(candidate)`
    or functions without parameters named `test...`, whose bodies are made of these; loops over
    literals are unrolled. The tested function is the one that asserts call.

    Args:
        code: The test code.
        function: Name of the function that the program defines; needed where the code calls it
            `candidate`.
        foreign: Names that mean something else than what the program defines.

    Raises:
        BadTest: The code has something else; the message quotes it.
    """
    try:
        module = parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadTest(f"code does not compile: {error}") from error
    reader = _Reader(function, foreign)
    reader.read(module.body)
    if not reader.tests:
        raise BadTest("code holds no assert that calls the tested function")
    return tuple(reader.tests)


class _Reader:
    def __init__(self, function: str | None, foreign: Collection[str]) -> None:
        self._function = function
        self._foreign = set(foreign)
        self._aliases = {function} if function else set[str]()
        self._names: dict[str, Any] = {}
        self._inlined: dict[str, ast.expr] = {}
        self.tests: list[AssertTest] = []

    def read(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            self._statement(statement)

    def _statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assert():
                self._assert(statement)
            case ast.FunctionDef(name=name) if name == CHECK_FUNCTION:
                self._check_function(statement)
            case ast.FunctionDef(name=name, decorator_list=[]) if name.startswith(TEST_PREFIX):
                self._test_function(statement)
            case ast.Assign(targets=[ast.Name(id=name)]):
                self._assign(name, statement.value)
            case ast.For(orelse=[]):
                self._loop(statement)
            case ast.ImportFrom(module=module, names=names) if module != PROGRAM_MODULE:
                self._foreign.update(one.asname or one.name for one in names)
            case ast.Import() | ast.ImportFrom() | ast.Pass():
                return  # what an import brings in is known here or refused where it is used
            case ast.Expr(value=ast.Constant()):
                return
            case ast.Expr(value=ast.Call(func=ast.Name(id=name))) if name == CHECK_FUNCTION:
                return
            case _:
                raise _refused(statement)

    def _check_function(self, function: ast.FunctionDef) -> None:
        arguments = [one.arg for one in function.args.args]
        if len(arguments) != 1 or self._function is None:
            raise BadTest("a check function needs one argument, and `entry_point` beside the code")
        self._aliases.add(arguments[0])
        self.read(function.body)

    def _test_function(self, function: ast.FunctionDef) -> None:
        if ast.unparse(function.args):
            raise _refused(function)
        outer = dict(self._names), dict(self._inlined)
        self.read(function.body)
        self._names, self._inlined = outer

    def _assign(self, name: str, value: ast.expr) -> None:
        self._names.pop(name, None)
        self._inlined.pop(name, None)
        if self._calls_in(value):
            self._inlined[name] = self._with_inlined(value)
        else:
            self._names[name] = self._evaluate(value)

    def _loop(self, loop: ast.For) -> None:
        for item in self._evaluate(loop.iter):
            self._bind(loop.target, item)
            self.read(loop.body)

    def _bind(self, target: ast.expr, item: Any) -> None:
        if isinstance(target, ast.Name):
            self._inlined.pop(target.id, None)
            self._names[target.id] = item
        elif isinstance(target, ast.Tuple):
            items = list(item)
            if len(items) != len(target.elts):
                raise BadTest(f"cannot unpack {len(items)} values into {ast.unparse(target)}")
            for part, value in zip(target.elts, items, strict=True):
                self._bind(part, value)
        else:
            raise _refused(target)

    def _assert(self, statement: ast.Assert) -> None:
        condition = self._with_inlined(statement.test)
        call_nodes = self._calls_in(condition)
        if not call_nodes:
            self._constant_assert(statement, condition)
            return
        test = AssertTest(
            source=ast.unparse(statement)[:300],
            calls=tuple(self._call(node) for node in call_nodes),
            condition=condition,
            nodes=tuple(id(node) for node in call_nodes),
            names=dict(self._names),
        )
        self._require_supported(condition, test.nodes)
        self.tests.append(test)

    def _constant_assert(self, statement: ast.Assert, condition: ast.expr) -> None:
        if not truth(self._evaluate(condition)):
            raise BadTest(f"this can never hold: {ast.unparse(statement)[:200]}")

    def _call(self, node: ast.Call) -> Call:
        names = [keyword.arg for keyword in node.keywords]
        if None in names:
            raise _refused(node)
        arguments: list[Any] = []
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                arguments.extend(self._evaluate(argument.value))
            else:
                arguments.append(self._evaluate(argument))
        keywords = {str(one.arg): self._evaluate(one.value) for one in node.keywords}
        assert isinstance(node.func, ast.Name)
        name = node.func.id
        function = self._function if self._function and name in self._aliases else name
        return Call(function=function, arguments=tuple(arguments), keywords=keywords)

    def _calls_in(self, node: ast.expr) -> list[ast.Call]:
        """Outermost calls of the tested function."""
        found: list[ast.Call] = []
        if isinstance(node, ast.Call) and self._is_tested(node.func):
            return [node]
        if isinstance(node, ast.Name) and node.id in self._inlined:
            return self._calls_in(self._inlined[node.id])
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.expr, ast.keyword)):
                inner = child.value if isinstance(child, ast.keyword) else child
                found.extend(self._calls_in(inner))
        return found

    def _is_tested(self, function: ast.expr) -> bool:
        if not isinstance(function, ast.Name):
            return False
        if self._function is not None:
            return function.id in self._aliases
        return function.id not in self._foreign and not hasattr(builtins, function.id)

    def _with_inlined(self, node: ast.expr) -> ast.expr:
        return _Inline(self._inlined).visit(node) if self._inlined else node

    def _evaluate(self, node: ast.expr) -> Any:
        self._require_supported(node, ())
        try:
            return Evaluator(self._names, {}).value(node)
        except Exception as error:  # whatever evaluating the test's own literals raises
            raise BadTest(f"{ast.unparse(node)[:200]} cannot be evaluated: {error}") from error

    def _require_supported(self, node: ast.expr, known: Collection[int]) -> None:
        try:
            require_supported(node, self._names, known)
        except Unsupported as error:
            raise _refused(node, error) from error


class _Inline(ast.NodeTransformer):
    """Puts the expression in place of each name that stands for one."""

    def __init__(self, inlined: dict[str, ast.expr]) -> None:
        self._inlined = inlined

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._inlined.get(node.id, node)


def _refused(node: ast.AST, why: Exception | None = None) -> BadTest:
    quoted = " ".join(ast.unparse(node).split())[:200]
    part = f" (because of {why})" if why is not None and str(why) not in quoted else ""
    return BadTest(
        f"code holds something that cannot be judged outside the program: {quoted}{part}. Asserts "
        "may compare what the tested function returns with literals; write other tests as `stdio` "
        "or `function` tests"
    )
