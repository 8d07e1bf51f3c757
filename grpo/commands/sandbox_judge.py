"""`verigrad sandbox judge`: judge solutions of a set of code problems, as training would."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any, get_args

from grpo.commands.solutions import Solution, read_solutions, reference_solutions
from grpo.config.data import DataConfig
from grpo.data.problems import load_problems
from sandbox.options import MAX_DEFAULT_SIZE, Isolation
from verifiers.code import CodeVerifier
from verifiers.code_block import Extraction
from verifiers.code_formats.read import AUTO, format_names, require_format
from verifiers.errors import BadReference
from verifiers.problem import Problem, Submission
from verifiers.verdict import Status, Verdict

REFERENCE = "reference"
ACCEPTED = "AC"
_EPILOG = f"""\
DATASET names the format of FILE: {", ".join(format_names())}, or {AUTO} to go by the columns
(docs/code_data.md).

Each row of a file of solutions has the `id` (or `task_id`) of its problem, and either `solution`, a
whole program, or `completion`, a model's reply, whose program is taken as in training.

exit status: 0 when every solution is accepted; 1 when one is not, or was not judged; 2 for a
mistake in the command or its input; 130 after Ctrl-C.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One solution's verdict; the fields are those of `--json`."""

    id: str
    verdict: str
    tests_passed: int
    tests_total: int
    cpu_s: float
    wall_s: float
    detail: str

    def as_json(self) -> str:
        """One line; `detail` only where the solution was not accepted."""
        fields: dict[str, Any] = {
            "id": self.id,
            "verdict": self.verdict,
            "tests_passed": self.tests_passed,
            "tests_total": self.tests_total,
            "cpu_s": round(self.cpu_s, 4),
            "wall_s": round(self.wall_s, 4),
        }
        return json.dumps(fields | ({"detail": self.detail} if self.detail else {}))

    def as_line(self) -> str:
        """For a person."""
        tests = f"{self.tests_passed}/{self.tests_total}"
        times = f"{self.cpu_s:8.3f} {self.wall_s:8.3f}"
        return f"{self.id:<24} {self.verdict:<9} {tests:>9} {times}  {self.detail[:100]}".rstrip()


def add_action(actions: Any) -> None:
    """Add `judge` to the actions of `sandbox`."""
    parser = actions.add_parser(
        "judge",
        help="judge a file of solutions, or a set's own",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("dataset", metavar="DATASET", help="format of the problems")
    parser.add_argument("--data", required=True, metavar="FILE", help="the problems")
    parser.add_argument(
        "--solutions",
        required=True,
        metavar="FILE",
        help=f"JSONL of solutions; `{REFERENCE}` judges those of the problems' own rows",
    )
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N problems")
    parser.add_argument(
        "--extract",
        choices=get_args(Extraction),
        default="block",
        help="how a program stands in a `completion`: in the last fenced block (the default), "
        "in the first one, or as the whole text",
    )
    parser.add_argument(
        "--stop-early", action="store_true", help="leave out the tests after one that fails"
    )
    parser.add_argument(
        "--cpu-s", type=float, default=4.0, help="of a test that states none (default: 4)"
    )
    parser.add_argument(
        "--memory-mb",
        type=int,
        default=256,
        help="of a program whose problem states none (default: 256)",
    )
    parser.add_argument("--pool-size", type=int, help="programs at a time; default: one a core")
    parser.add_argument("--image", help="default: the one that `verigrad sandbox build` makes")
    parser.add_argument("--runtime", help="container runtime, such as runsc (gVisor)")
    parser.add_argument("--isolation", choices=get_args(Isolation), default="uid")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Judge; 0 when every solution is accepted.

    Raises:
        UserError: The data or the solutions cannot be read.
        SandboxUnavailable: No program can be run here.
    """
    problems = _load(args)
    solutions = list(
        reference_solutions(problems)
        if args.solutions == REFERENCE
        else read_solutions(args.solutions, problems, args.extract)
    )
    with closing(_make_verifier(args)) as verifier:
        unreadable = _find_unreadable(verifier, problems)
        ready = [one for one in solutions if one.problem.id not in unreadable]
        verifier.start()
        start = time.monotonic()
        counts: Counter[str] = Counter()
        if not args.json:
            print(f"{'id':<24} {'verdict':<9} {'tests':>9} {'CPU s':>8} {'wall s':>8}")
        for result in judge_all(verifier, ready, threads=2 * _pool_size(args)):
            counts[result.verdict] += 1
            print(result.as_json() if args.json else result.as_line(), flush=True)
    if not args.json:
        _print_summary(counts, time.monotonic() - start)
    return 0 if set(counts) == {ACCEPTED} and not unreadable else 1


def judge_all(
    verifier: CodeVerifier, solutions: Iterable[Solution], threads: int
) -> Iterator[Result]:
    """Results in the order of the solutions, each as soon as it and those before it are there.

    An interrupt closes the verifier, which ends what is running, and is raised again.
    """
    waiting: deque[Future[Result]] = deque()
    executor = ThreadPoolExecutor(threads)
    try:
        for solution in solutions:
            waiting.append(executor.submit(_judge, verifier, solution))
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BaseException:
        # First, since one that starts later would open the sandbox again.
        executor.shutdown(wait=False, cancel_futures=True)
        verifier.close()
        raise
    finally:
        executor.shutdown()


def _judge(verifier: CodeVerifier, solution: Solution) -> Result:
    verdict = verifier.verify(Submission(problem=solution.problem, completion=solution.program))
    assert verdict.report is not None
    tests = verdict.report["tests"]
    return Result(
        id=solution.id,
        verdict=_overall(verdict),
        tests_passed=sum(one["verdict"] == ACCEPTED for one in tests),
        tests_total=verdict.report["num_tests"],
        cpu_s=sum(one["cpu_s"] for one in tests),
        wall_s=sum(one["wall_s"] for one in tests),
        detail=verdict.detail or "",
    )


def _overall(verdict: Verdict) -> str:
    """The verdict of the first test that was not passed, or what kept the program from running."""
    match verdict.status:
        case Status.CORRECT:
            return ACCEPTED
        case Status.NO_ANSWER:
            return "NO_ANSWER"
        case Status.ERROR:
            return "IE"
    assert verdict.report is not None
    failed = (one["verdict"] for one in verdict.report["tests"] if one["verdict"] != ACCEPTED)
    return next(failed, "CE")  # no test was run: the program is too long to be compiled


def _load(args: argparse.Namespace) -> dict[str, Problem]:
    """The problems, by their own identity."""
    require_format(args.dataset)  # said before the data is looked for
    data = DataConfig(
        path=args.data, name=args.dataset, format=args.dataset, verifier="code", limit=args.limit
    )
    return {one.id.partition("/")[2]: one for one in load_problems(data)}


def _make_verifier(args: argparse.Namespace) -> CodeVerifier:
    return CodeVerifier(
        scoring="all" if args.stop_early else "fraction",
        extract="text",
        cpu_s=args.cpu_s,
        memory_mb=args.memory_mb,
        pool_size=args.pool_size,
        image=args.image,
        runtime=args.runtime,
        isolation=args.isolation,
    )


def _pool_size(args: argparse.Namespace) -> int:
    return args.pool_size or min(os.cpu_count() or 1, MAX_DEFAULT_SIZE)


def _find_unreadable(verifier: CodeVerifier, problems: Mapping[str, Problem]) -> set[str]:
    """Identities of problems whose tests cannot be used; each is said."""
    unreadable = set[str]()
    for problem in problems.values():
        try:
            verifier.prepare(problem)
        except BadReference as error:
            print(f"left out: {error}", file=sys.stderr)
            unreadable.add(problem.id)
    return unreadable


def _print_summary(counts: Counter[str], seconds: float) -> None:
    total = sum(counts.values())
    verdicts = ", ".join(f"{number} {verdict}" for verdict, number in counts.most_common())
    rate = total / seconds if seconds else 0.0
    print(f"\n{total} solutions: {verdicts or 'none'}; {seconds:.1f} s, {rate:.1f} a second")
