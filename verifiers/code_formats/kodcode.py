"""KodCode: functions, tested by functions such as pytest collects."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from verifiers.code_formats.cases import Test
from verifiers.code_formats.prompts import ask
from verifiers.code_formats.row import CodeFormat, CodeRow, Fields

_MODULE = "solution"  # as which the tests import the program


def _read(fields: Fields) -> CodeRow:
    source = fields.text("test")
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise fields.error("test", f"does not compile: {error}") from error
    names = _tested_names(fields, module)
    tests = [_make_test(code, names) for code in _split(fields, module)]
    if not tests:
        raise fields.error("test", "defines no function whose name begins with `test`")
    return CodeRow(
        id=fields.identity("question_id", "conversation_id", "id"),
        prompt=ask(fields.text("question"), entry_point=names[0]),
        reference={"tests": tests},
        solution=fields.optional_text("solution"),
    )


def _tested_names(fields: Fields, module: ast.Module) -> list[str]:
    """What the tests import from the program."""
    names: list[str] = []
    for node in module.body:
        if isinstance(node, ast.ImportFrom) and node.module == _MODULE:
            names += [one.name for one in node.names if one.asname in (None, one.name)]
            if any(one.name == "*" or one.asname not in (None, one.name) for one in node.names):
                raise fields.error(
                    "test", f"imports from `{_MODULE}` otherwise than by plain names"
                )
    if not names:
        raise fields.error(
            "test", f"has no line `from {_MODULE} import ...` that names what is tested"
        )
    return names


def _make_test(code: str, names: Sequence[str]) -> Test:
    test: Test = {"kind": "assert", "code": code}
    # With several, asserts say themselves which one they call.
    return test | ({"entry_point": names[0]} if len(names) == 1 else {})


def _split(fields: Fields, module: ast.Module) -> Iterator[str]:
    """The code of each test on its own, after what all of them share."""
    shared: list[ast.stmt] = []
    tests: list[ast.FunctionDef] = []
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            tests.append(node)
        elif not (isinstance(node, ast.ImportFrom) and node.module == _MODULE):
            shared.append(node)
    for test in tests:
        body = _parametrized(fields, test) if test.decorator_list else test.body
        yield ast.unparse(ast.Module(body=[*shared, *body], type_ignores=[]))


def _parametrized(fields: Fields, test: ast.FunctionDef) -> list[ast.stmt]:
    """The body in a loop over its parameters' values."""
    body: list[ast.stmt] = test.body
    for decorator in test.decorator_list:
        match decorator:
            case ast.Call(
                func=ast.Attribute(attr="parametrize"),
                args=[ast.Constant(value=str(names)), values],
            ):
                target = ast.parse(names.strip().strip(",")).body[0]
                assert isinstance(target, ast.Expr)
                loop = ast.parse(f"for {ast.unparse(target)} in []: pass").body[0]
                assert isinstance(loop, ast.For)
                loop.iter, loop.body = values, body
                body = [loop]
            case _:
                raise fields.error(
                    "test",
                    f"decorates {test.name} with something unknown: {ast.unparse(decorator)}",
                )
    return body


KODCODE = CodeFormat(
    name="kodcode",
    columns=("question", "test", "solution"),
    bulky=("test", "test_info"),
    read=_read,
)
