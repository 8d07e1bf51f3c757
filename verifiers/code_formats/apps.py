"""APPS and TACO: contest problems with `input_output`, the JSON of parallel lists."""

from __future__ import annotations

import re

from verifiers.code_formats.cases import find_entry_point, make_reference, read_tests
from verifiers.code_formats.prompts import ask
from verifiers.code_formats.row import CodeFormat, CodeRow, Fields, describe

_SECONDS = re.compile(
    r"\s*(\d+(?:\.\d+)?)\s*(?:s|sec|secs|second|seconds)?\s*\.?\s*", re.IGNORECASE
)


def _read(fields: Fields) -> CodeRow:
    # Some published rows have no test at all: that is for the verifier to say, and to count.
    tests = read_tests(fields, "input_output") if fields.row.get("input_output") else []
    limit = _time_limit(fields)
    return CodeRow(
        id=fields.identity("problem_id", "id"),
        prompt=ask(
            fields.text("question"),
            entry_point=find_entry_point(tests),
            starter_code=fields.optional_text("starter_code"),
        ),
        reference=make_reference(tests, **({} if limit is None else {"limits": {"cpu_s": limit}})),
        solution=_first_solution(fields),
    )


def _first_solution(fields: Fields) -> str | None:
    if not fields.row.get("solutions"):
        return None
    solutions = fields.texts("solutions")
    return solutions[0] if solutions else None


def _time_limit(fields: Fields) -> float | None:
    """Seconds: TACO writes them as `2 seconds` or `2.0 s`."""
    stated = fields.row.get("time_limit")
    if stated is None or stated == "":
        return None
    match = _SECONDS.fullmatch(str(stated))
    if match is None or float(match[1]) <= 0:
        raise fields.error(
            "time_limit", f"must be a time such as '2 seconds', not {describe(stated)}"
        )
    return float(match[1]) * fields.time_limit_factor


_BULKY = ("input_output", "solutions")
TACO = CodeFormat(
    name="taco",
    columns=("question", "input_output", "time_limit"),
    bulky=_BULKY,
    read=_read,
)
APPS = CodeFormat(name="apps", columns=("question", "input_output"), bulky=_BULKY, read=_read)
