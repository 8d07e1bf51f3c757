"""CodeContests: public, private and generated tests, and solutions by language."""

from __future__ import annotations

from typing import Any

from verifiers.code_formats.cases import make_reference, stdio_test
from verifiers.code_formats.prompts import ask
from verifiers.code_formats.row import CodeFormat, CodeRow, Fields, describe

_TEST_FIELDS = ("public_tests", "private_tests", "generated_tests")
_PYTHON_3 = (3, "PYTHON3")
_NO_FILES = (None, "", "stdin", "stdout", "standard input", "standard output")


def _read(fields: Fields) -> CodeRow:
    for name in ("input_file", "output_file"):
        if fields.row.get(name) not in _NO_FILES:
            raise fields.error(
                name,
                f"is {fields.row[name]!r}: programs in the sandbox have no files, only standard "
                "input and output, so leave such rows out",
            )
    limit = _time_limit(fields)
    tests = [stdio_test(stdin, *outputs) for stdin, outputs in _read_outputs(fields).items()]
    return CodeRow(
        id=fields.identity("name"),
        prompt=ask(fields.text("description"), entry_point=None),
        # Contests forgive how words are spaced.
        reference=make_reference(tests, compare="tokens")
        | ({} if limit is None else {"limits": {"cpu_s": limit}}),
        solution=_python_solution(fields),
    )


def _read_outputs(fields: Fields) -> dict[str, list[str]]:
    """All outputs that are right for an input, by input; no checker says what else might be."""
    outputs: dict[str, list[str]] = {}
    for name in _TEST_FIELDS:
        if fields.row.get(name) is None:
            continue
        tests = fields.object(name)
        for stdin, output in zip(tests.texts("input"), _same_length(tests), strict=True):
            known = outputs.setdefault(stdin, [])
            if output not in known:
                known.append(output)
    return outputs


def _same_length(tests: Fields) -> list[str]:
    tests.pairs("input", "output")
    return list(tests.texts("output"))


def _time_limit(fields: Fields) -> float | None:
    stated = fields.row.get("time_limit")
    if stated is None:
        return None
    seconds: Any = stated
    if isinstance(stated, dict):
        seconds = (stated.get("seconds") or 0) + (stated.get("nanos") or 0) / 1e9
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or seconds < 0:
        raise fields.error("time_limit", f"must be a number of seconds, not {describe(stated)}")
    return seconds * fields.time_limit_factor if seconds else None


def _python_solution(fields: Fields) -> str | None:
    """The first one in Python 3; languages are numbers there, or their names."""
    if not fields.row.get("solutions"):
        return None
    solutions = fields.object("solutions").pairs("language", "solution")
    return next((program for language, program in solutions if language in _PYTHON_3), None)


CODECONTESTS = CodeFormat(
    name="codecontests",
    columns=("description", "public_tests"),
    bulky=(*_TEST_FIELDS, "solutions", "incorrect_solutions"),
    read=_read,
)
