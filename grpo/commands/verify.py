"""`verigrad verify`: judge answers from the command line, a file or a table of labelled cases."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from grpo.commands.audit import Audit
from grpo.commands.cases import run_cases
from grpo.commands.conformance import check_conformance
from grpo.commands.options import read_options
from grpo.commands.rows import get_column, make_problem, read_rows
from grpo.commands.show import print_verdict
from verifiers.errors import BadReference, UserError
from verifiers.judge import Judge
from verifiers.problem import Problem, Submission
from verifiers.verdict import Status, Verdict

DESCRIPTION = """\
Judge answers with the verifier that training uses, and say why.

examples:
  verigrad verify --gold 42 --answer '\\boxed{42}'
  verigrad verify --gold '(1, 2]' --answer 'so \\boxed{1 < x \\le 2}' --json
  verigrad verify completions.jsonl --gold-column answer --completion-column completion
  cat completions.jsonl | verigrad verify - --option extraction=answer_tag
  verigrad verify rows.jsonl --verifier my_checks.py:close_enough --option cpu_limit_s=5
  verigrad verify --cases cases.jsonl       confusion by kind for rows with gold, prediction,
                                            expected and, optionally, kind and policy
  verigrad verify completions.jsonl --audit 20          wrong answers, for a person to read
  verigrad verify --conformance my_checks.py:check      whether a function is fit to be a verifier

exit status: 0 for a right answer, a judged file, cases without a false accept whose `policy` labels
are all reached by an option, or a function that breaks no rule; 1 otherwise; 2 for a mistake in the
command or its input.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `verify` to the command line."""
    parser = subparsers.add_parser(
        "verify",
        help="judge answers: one pair, a file, or a table of labelled cases",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", nargs="?", help="JSONL of completions; `-` is standard input")
    parser.add_argument("--gold", help="reference of a single answer")
    parser.add_argument("--answer", help="completion that holds the single answer")
    parser.add_argument("--cases", metavar="FILE", help="JSONL of labelled cases")
    parser.add_argument(
        "--conformance",
        metavar="FUNCTION",
        help="try a verifier by the rules that all keep to; a file, or --gold and --answer, give "
        "it rows (with `expected`: known answers)",
    )
    parser.add_argument(
        "--audit",
        type=int,
        metavar="N",
        help="of a file's verdicts print N that are not correct, with gold and completion",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the --audit sample (default: 0)")
    parser.add_argument(
        "--verifier", default="math", help="built-in name or your own function (default: math)"
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="option of the verifier; may be repeated",
    )
    parser.add_argument("--gold-column", default="answer", help="default: answer")
    parser.add_argument("--completion-column", default="completion", help="default: completion")
    parser.add_argument(
        "--json",
        action="store_true",
        help="one object a line: id, status, reward, reason, extracted",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command; its exit status.

    Raises:
        UserError: The arguments or the file are wrong.
    """
    options = read_options(args.option)
    if args.conformance:
        return check_conformance(args, options)
    modes = [args.gold is not None or args.answer is not None, bool(args.cases), bool(args.file)]
    if sum(modes) != 1:
        raise UserError("give one of: --gold with --answer, a file (or `-`), --cases FILE")
    if args.audit is not None and (args.audit < 1 or not args.file):
        raise UserError("--audit takes a number of at least 1, and goes with a file of completions")
    if args.cases:
        return run_cases(args, options)
    judge = Judge({args.verifier: options})
    try:
        if args.file:
            return _run_file(judge, args)
        return _run_pair(judge, args)
    finally:
        judge.close()


def _run_pair(judge: Judge, args: argparse.Namespace) -> int:
    if args.gold is None or args.answer is None:
        raise UserError("--gold and --answer go together")
    problem = Problem(
        id="0", prompt="", verifier=args.verifier, reference=args.gold, source="--gold"
    )
    judge.prepare(problem)
    verdict = judge.verify(Submission(problem=problem, completion=args.answer))
    print_verdict("0", verdict, as_json=args.json)
    return 0 if verdict.status is Status.CORRECT else 1


def _run_file(judge: Judge, args: argparse.Namespace) -> int:
    counts: Counter[str] = Counter()
    audit = Audit(args.audit, args.seed) if args.audit else None
    for submission, verdict in _judge_rows(judge, args):
        counts[f"{verdict.status} ({verdict.reason})"] += 1
        if audit is None:
            print_verdict(submission.problem.id, verdict, as_json=args.json)
        else:
            audit.add(submission, verdict)
    if audit is not None:
        audit.print(as_json=args.json)
    if not args.json:
        print()
        for name, count in counts.most_common():
            print(f"{count:7d}  {name}")
    return 0


def _judge_rows(judge: Judge, args: argparse.Namespace) -> Iterator[tuple[Submission, Verdict]]:
    """Row by row; where the verifier judges whole groups, when all rows are read."""
    submissions = (_read_submission(judge, args, *row) for row in read_rows(args.file))
    if judge.wants_group(args.verifier):
        whole = list(submissions)
        yield from zip(whole, judge.verify_batch(whole), strict=True)
        return
    for submission in submissions:
        yield submission, judge.verify(submission)


def _read_submission(
    judge: Judge, args: argparse.Namespace, source: str, row: Mapping[str, Any]
) -> Submission:
    problem = make_problem(row, args.gold_column, args.verifier, source)
    completion = get_column(row, args.completion_column, source)
    if not isinstance(completion, str):
        raise UserError(f"{source}: column {args.completion_column!r} is not text")
    _prepare(judge, problem)
    truncated = row.get("truncated") is True
    return Submission(problem=problem, completion=completion, truncated=truncated)


def _prepare(judge: Judge, problem: Problem) -> None:
    """Stop for a row that a plug-in cannot take.

    An unreadable reference is a verdict of its own.
    """
    try:
        judge.prepare(problem)
    except BadReference as error:
        if ":" in problem.verifier:
            raise
        print(f"warning: {error}", file=sys.stderr)
