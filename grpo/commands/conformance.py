"""`verigrad verify --conformance`: whether a user's function is fit to be a verifier."""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Mapping
from typing import Any

from grpo.commands.rows import get_column, make_problem, read_rows
from verifiers.conformance import Check, KnownAnswer, run_conformance
from verifiers.errors import UserError
from verifiers.problem import Problem, Submission

_MAX_ROWS = 100
_DEFAULT_GOLD = "42"
_MARKS = {True: "ok", False: "FAILED", None: "skipped"}


def check_conformance(args: argparse.Namespace, options: Mapping[str, Any]) -> int:
    """Run the suite on `args.conformance` and print each outcome.

    Returns:
        0 when no rule is broken, 1 otherwise.

    Raises:
        UserError: The rows to judge cannot be read.
    """
    passed = True
    for check in run_conformance(args.conformance, options, _read_known(args)):
        passed &= check.passed is not False
        _print_check(check, as_json=args.json)
    return 0 if passed else 1


def _print_check(check: Check, *, as_json: bool) -> None:
    if as_json:
        record = {"check": check.name, "passed": check.passed, "detail": check.detail}
        print(json.dumps(record, ensure_ascii=False), flush=True)
        return
    detail = f"  ({check.detail})" if check.detail else ""
    print(f"{_MARKS[check.passed]:8s} {check.name}{detail}", flush=True)


def _read_known(args: argparse.Namespace) -> list[KnownAnswer]:
    if args.file:
        rows = itertools.islice(read_rows(args.file), _MAX_ROWS)
        known = [_known(row, source, args) for source, row in rows]
        if not known:
            raise UserError(f"{args.file} has no rows")
        return known
    problem = Problem(
        id="0",
        prompt="",
        verifier=args.conformance,
        reference=_DEFAULT_GOLD if args.gold is None else args.gold,
        source="--gold",
    )
    if args.answer is None:
        return [KnownAnswer(submission=Submission(problem=problem, completion=""))]
    return [KnownAnswer(submission=Submission(problem=problem, completion=args.answer), right=True)]


def _known(row: Mapping[str, Any], source: str, args: argparse.Namespace) -> KnownAnswer:
    problem = make_problem(row, args.gold_column, args.conformance, source)
    expected = row.get("expected")
    if expected is None:
        completion = str(row.get(args.completion_column, ""))
    else:
        completion = str(get_column(row, args.completion_column, source))
    truncated = row.get("truncated") is True
    return KnownAnswer(
        submission=Submission(problem=problem, completion=completion, truncated=truncated),
        right=expected if isinstance(expected, bool) else None,
    )
