"""Speed and size of the verifier of maths beside math-verify's defaults, on the same pairs.

    python benchmarks/verifiers.py [--data FOLDER] [--problems N] [--pairs N]

Each contestant has one process, and they take turns, so that whatever else the machine does falls
on both. The folder of public data is VERIGRAD_DATA where --data does not name it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)  # this script's folder would hide the package of the script's name

from benchmarks.math_pairs import (  # noqa: E402
    Pair,
    make_formula_pairs,
    needs_worker,
    read_gsm8k_groups,
)
from verifiers.workers import WorkerPool, WorkerSettings  # noqa: E402

CONTESTANTS = ("verigrad", "math-verify")
CHUNK = 64
NUM_TRIPS = 2000
NUM_HANGS = 5
HANG_LIMIT_S = 0.5
CALCULUS = Pair(r"\sum_{k=1}^{n} k", r"\boxed{\frac{n(n+1)}{2}}", True)  # loads all of sympy
SPIN = "[0 for _ in iter(int, 1)]"


class Contestant:
    """A process that judges pairs and says how long it took."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def judge(self, pairs: Sequence[Pair]) -> tuple[float, list[bool]]:
        """Seconds, and which pairs were taken for right."""
        reply = self._ask([list(pair) for pair in pairs])
        return reply["seconds"], reply["right"]

    def measure(self) -> float:
        """Resident megabytes of the largest process that judges."""
        return self._ask("size")["megabytes"]

    def close(self) -> None:
        """End the process."""
        self._process.communicate("")

    def _ask(self, job: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def serve(name: str) -> None:
    """A contestant's side: a job a line, a reply a line."""
    judge = _make_verigrad() if name == "verigrad" else _make_math_verify()
    for line in sys.stdin:
        job = json.loads(line)
        if job == "size":
            reply: dict[str, Any] = {"megabytes": _largest_mb()}
        else:
            started = time.perf_counter()
            right = [judge(gold, completion) for gold, completion, _ in job]
            reply = {"seconds": time.perf_counter() - started, "right": right}
        print(json.dumps(reply), flush=True)


def _make_verigrad() -> Any:
    from verifiers.problem import Problem, Submission
    from verifiers.registry import build_verifier
    from verifiers.verdict import Status

    verifier = build_verifier("math", {})

    def judge(gold: str, completion: str) -> bool:
        problem = Problem(id="0", prompt="", verifier="math", reference=gold, source="benchmark")
        verdict = verifier.verify(Submission(problem=problem, completion=completion))
        return verdict.status is Status.CORRECT

    return judge


def _make_math_verify() -> Any:
    from math_verify import parse, verify

    def judge(gold: str, completion: str) -> bool:
        return verify(parse(f"\\boxed{{{gold}}}"), parse(completion))

    return judge


def _largest_mb() -> float:
    import psutil

    own = psutil.Process()
    return max(p.memory_info().rss for p in [own, *own.children(recursive=True)]) / 2**20


def compare(
    contestants: Sequence[Contestant], pairs: Sequence[Pair]
) -> dict[str, tuple[float, int]]:
    """Seconds and wrong verdicts of each contestant; who goes first alternates."""
    seconds: dict[str, float] = dict.fromkeys(CONTESTANTS, 0.0)
    wrong: dict[str, int] = dict.fromkeys(CONTESTANTS, 0)
    for start in range(0, len(pairs), CHUNK):
        chunk = pairs[start : start + CHUNK]
        turn = contestants if start // CHUNK % 2 else contestants[::-1]
        for contestant in turn:
            took, right = contestant.judge(chunk)
            seconds[contestant.name] += took
            wrong[contestant.name] += sum(
                found != pair.right for found, pair in zip(right, chunk, strict=True)
            )
    return {name: (seconds[name], wrong[name]) for name in CONTESTANTS}


def time_round_trips() -> list[float]:
    """Milliseconds of jobs that do nothing."""
    pool = WorkerPool(WorkerSettings(target="builtins:len"))
    times = []
    try:
        pool.run("")
        for _ in range(NUM_TRIPS):
            started = time.perf_counter()
            pool.run("")
            times.append(1000 * (time.perf_counter() - started))
    finally:
        pool.close()
    return times


def time_neighbours() -> list[float]:
    """Milliseconds that a job waits behind one that hangs, beyond the hung one's end."""
    delays = []
    for _ in range(NUM_HANGS):
        pool = WorkerPool(WorkerSettings(target="builtins:eval", cpu_limit_s=HANG_LIMIT_S))
        ended = []

        def hang(pool: WorkerPool = pool, ended: list[float] = ended) -> None:
            pool.run(SPIN)
            ended.append(time.perf_counter())

        try:
            pool.run("1")
            hung = threading.Thread(target=hang)
            hung.start()
            time.sleep(HANG_LIMIT_S / 5)
            pool.run("1")  # the pool has one slot: this waits for the hung job's end
            answered = time.perf_counter()
            hung.join()
            delays.append(1000 * (answered - ended[0]))
        finally:
            pool.close()
    return delays


def print_comparison(title: str, pairs: int, found: dict[str, tuple[float, int]]) -> None:
    """A row of the first table."""
    (ours, our_wrong), (theirs, their_wrong) = found["verigrad"], found["math-verify"]
    print(
        f"| {title} | {pairs:,} | {pairs / ours:,.0f} | {pairs / theirs:,.0f} | "
        f"{theirs / ours:.1f}x | {our_wrong} | {their_wrong} |",
        flush=True,
    )


def main() -> None:
    """Run all measurements and print two tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    default = os.environ.get("VERIGRAD_DATA", ROOT.parent / "shared" / "data")
    parser.add_argument("--data", type=Path, default=Path(default), help="folder of public data")
    parser.add_argument("--problems", type=int, default=300, help="GSM8K problems (default: 300)")
    parser.add_argument(
        "--pairs", type=int, default=300, help="formulas of either kind (default: 300)"
    )
    parser.add_argument("--serve", choices=CONTESTANTS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve)
        return
    if not args.data.is_dir():
        parser.error(f"there is no folder {args.data}; set VERIGRAD_DATA or give --data")
    contestants = [Contestant(name) for name in CONTESTANTS]
    try:
        run(args, contestants)
    finally:
        for contestant in contestants:
            contestant.close()


def run(args: argparse.Namespace, contestants: Sequence[Contestant]) -> None:
    """Print the tables."""
    # Warm both up: each loads sympy with its first formula, and verigrad pint with its first units.
    compare(contestants, [Pair("\\sqrt{2}", "\\boxed{\\frac{2}{\\sqrt{2}}}", True)])
    compare(contestants, [Pair("5\\text{ km}", "\\boxed{5000\\text{ m}}", True)])
    print("| pairs | number | verigrad, verdicts/s | math-verify, verdicts/s | ratio | "
          "verigrad wrong | math-verify wrong |")  # fmt: skip
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for turn, repeats in enumerate((1, 4)):
        # Other problems each time: verigrad remembers the answers that it has judged.
        problems = range(turn * args.problems, (turn + 1) * args.problems)
        groups = read_gsm8k_groups(args.data, problems, repeats)
        pairs = [pair for group in groups for pair in group]
        title = f"GSM8K model solutions, groups of {4 * repeats}"
        print_comparison(title, len(pairs), compare(contestants, pairs))
    formulas = make_formula_pairs(args.data, args.pairs)
    hard = [pair for pair in formulas if needs_worker(pair)]
    for title, chosen in (
        ("distinct formulas", [pair for pair in formulas if pair not in set(hard)]),
        ("distinct formulas that need the worker", hard),
    ):
        print_comparison(title, len(chosen), compare(contestants, chosen))
    trips, delays = time_round_trips(), time_neighbours()
    print("\n| size and delay | value |\n| --- | --- |")
    print(f"| round trip through the pool, median | {statistics.median(trips):.2f} ms |")
    print(f"| round trip, 99th percentile | {statistics.quantiles(trips, n=100)[98]:.2f} ms |")
    print(f"| wait behind a hung job beyond its end, median | {statistics.median(delays):.0f} ms |")
    print(f"| the same, largest of {NUM_HANGS} | {max(delays):.0f} ms |")
    compare(contestants, [CALCULUS])
    for contestant in contestants:
        print(f"| largest process, {contestant.name} | {contestant.measure():.0f} MB |")


if __name__ == "__main__":
    main()
