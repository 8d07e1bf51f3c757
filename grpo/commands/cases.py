"""`verigrad verify --cases`: a table of labelled cases, beside what math-verify made of it."""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from grpo.commands.rows import get_column, make_problem, read_rows
from grpo.commands.show import print_verdict
from verifiers.judge import Judge
from verifiers.maths.options import ALTERNATIVES
from verifiers.problem import Submission
from verifiers.verdict import Status, Verdict

_OPTIONS: Mapping[str, Any] = {"extraction": "lenient"}
_COLUMNS = ("accept", "reject", "false accept", "false reject", "not verified", "peer wrong")
_BY_DEFAULT, _BY_OPTION, _UNREACHED = "by default", "with an option", "not reached"


def run_cases(args: argparse.Namespace, options: Mapping[str, Any]) -> int:
    """Judge `args.cases` and print the confusion by kind.

    A row marked `policy` has a label that depends on a choice: it is shown with the option that
    leads to its label where the present ones do not.

    Returns:
        1 for a false accept, a row that was not verified, or a policy label that no option reaches;
        otherwise 0.

    Raises:
        UserError: The rows cannot be read.
    """
    if args.verifier == "math":
        options = {**_OPTIONS, **options}
    table: dict[str, Counter[str]] = defaultdict(Counter)
    policy: Counter[str] = Counter()
    judges = _Judges(args.verifier, options)
    try:
        for source, row in read_rows(args.cases):
            problem = make_problem(row, "gold", args.verifier, source)
            completion = str(get_column(row, "prediction", source))
            submission = Submission(problem=problem, completion=completion)
            expected = get_column(row, "expected", source) is True
            if row.get("policy"):
                policy[_judge_policy(judges, submission, expected, as_json=args.json)] += 1
            else:
                counts = table[str(row.get("kind", "all"))]
                counts[_judge_case(judges, submission, expected, as_json=args.json)] += 1
                if "math_verify" in row:
                    counts["peer wrong"] += row["math_verify"] != str(expected).lower()
    finally:
        judges.close()
    if not args.json:
        _print_table(table, policy)
    wrong = sum(c["false accept"] + c["not verified"] for c in table.values())
    return 1 if wrong or policy[_UNREACHED] else 0


class _Judges:
    """The verifier with the user's options, and with each alternative that was asked for."""

    def __init__(self, verifier: str, options: Mapping[str, Any]) -> None:
        self._verifier = verifier
        self._options = options
        self._built: dict[str, Judge] = {}
        self.alternatives = ALTERNATIVES if verifier == "math" else {}

    def verify(self, submission: Submission, alternative: str = "") -> Verdict:
        if alternative not in self._built:
            changed = {alternative: self.alternatives[alternative]} if alternative else {}
            self._built[alternative] = Judge({self._verifier: {**self._options, **changed}})
        return self._built[alternative].verify(submission)

    def close(self) -> None:
        for judge in self._built.values():
            judge.close()


def _judge_case(judges: _Judges, submission: Submission, expected: bool, *, as_json: bool) -> str:
    verdict = judges.verify(submission)
    outcome = _name_outcome(expected, verdict)
    if as_json or outcome not in ("accept", "reject"):
        print_verdict(submission.problem.id, verdict, as_json=as_json, note=outcome)
    return outcome


def _judge_policy(judges: _Judges, submission: Submission, expected: bool, *, as_json: bool) -> str:
    verdict = judges.verify(submission)
    outcome, note = _BY_DEFAULT, _name_outcome(expected, verdict)
    if (verdict.status is Status.CORRECT) is not expected:
        outcome = note = _UNREACHED
        for name, value in judges.alternatives.items():
            other = judges.verify(submission, name)
            if (other.status is Status.CORRECT) is expected:
                outcome, note = _BY_OPTION, f"{name}={str(value).lower()}"
                break
    if as_json or outcome is not _BY_DEFAULT:
        print_verdict(submission.problem.id, verdict, as_json=as_json, note=note)
    return outcome


def _name_outcome(expected: bool, verdict: Verdict) -> str:
    if verdict.status is Status.CORRECT:
        return "accept" if expected else "false accept"
    if verdict.status is Status.BAD_GOLD and not expected:
        return "reject"
    if not verdict.verified:
        return "not verified"
    return "false reject" if expected else "reject"


def _print_table(table: Mapping[str, Counter[str]], policy: Counter[str]) -> None:
    total: Counter[str] = sum(table.values(), Counter())
    shown = [c for c in _COLUMNS if c in _COLUMNS[:4] or total[c]]
    titles = ["math-verify wrong" if c == "peer wrong" else c for c in shown]
    print("\n" + f"{'kind':22s}" + "".join(f"{title:>{len(title) + 3}s}" for title in titles))
    for kind, counts in [*sorted(table.items()), ("all", total)]:
        cells = (f"{counts[c]:{len(t) + 3}d}" for c, t in zip(shown, titles, strict=True))
        print(f"{kind:22s}" + "".join(cells))
    if policy:
        parts = (f"{policy[name]} {name}" for name in (_BY_DEFAULT, _BY_OPTION, _UNREACHED))
        print(f"\nlabels that depend on a choice, reached: {', '.join(parts)}")
