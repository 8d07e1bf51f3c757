"""Speed of the sandbox beside a hardened `docker run --rm` per test, on the same programs.

    python benchmarks/sandbox.py [--data FOLDER] [--rounds N]

The two take turns, so that whatever else the machine does falls on both. CPU time is that of the
containers, by their control groups, and of this process. The folder of public data is VERIGRAD_DATA
where --data does not name it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)  # this script's folder would hide the package of the script's name

from sandbox.backends import open_pool  # noqa: E402
from sandbox.engine import Engine  # noqa: E402
from sandbox.image import DEFAULT_IMAGE  # noqa: E402
from sandbox.options import SandboxOptions  # noqa: E402
from sandbox.owner import LABEL  # noqa: E402
from sandbox.pool import SandboxPool  # noqa: E402
from sandbox.result import Call, ExecStatus, Job  # noqa: E402
from verifiers.code import CodeVerifier  # noqa: E402
from verifiers.code_formats.read import read_code_row  # noqa: E402
from verifiers.problem import Problem, Submission  # noqa: E402
from verifiers.verdict import Status  # noqa: E402

CORES = 2
PROGRAM = "print(int(input()) + 1)"
FUNCTION = "def f(x): return x + 1"
JOBS = {
    "stdin, 16 tests a program": Job(program=PROGRAM, inputs=(b"41",) * 16),
    "stdin, 1 test a program": Job(program=PROGRAM, inputs=(b"41",)),
    "function, 16 calls a program": Job(
        program=FUNCTION, calls=tuple(Call(function="f", arguments=(i,)) for i in range(16))
    ),
}
# What a container of the pool has too, in the words of the command line.
HARDENED = (
    "docker", "run", "--rm", "-i", "--network=none", "--ipc=none", "--read-only", "--cap-drop=ALL",
    "--security-opt=no-new-privileges", "--pids-limit=64", "--memory=320m", "--memory-swap=320m",
    "--cpus=1", "--init", "--log-driver=none", "--user=65534:65534",
)  # fmt: skip


@dataclass(slots=True)
class Tally:
    """Verdicts, with the wall and CPU seconds that they took."""

    verdicts: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0

    @property
    def rate(self) -> float:
        """Verdicts a second."""
        return self.verdicts / self.wall_s

    @property
    def cpu_ms(self) -> float:
        """CPU milliseconds a verdict."""
        return 1000 * self.cpu_s / self.verdicts


class Containers:
    """The control groups of this process's containers.

    Args:
        engine: Knows which they are.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def cpu_seconds(self) -> float:
        """CPU time of all of them."""
        usage = [self._read(one, "cpuacct", "cpuacct.usage", "cpu.stat") for one in self._ids()]
        return sum(
            int(text.split()[1]) / 1e6 if "usage_usec" in text else int(text) / 1e9
            for text in usage
        )

    def resident_mb(self) -> float:
        """Anonymous memory of the largest one: what is not shared with the page cache."""
        stats = [self._read(one, "memory", "memory.stat", "memory.stat") for one in self._ids()]
        tables = [dict(line.split() for line in text.splitlines()) for text in stats]
        return max(int(table.get("rss") or table["anon"]) for table in tables) / 2**20

    def _ids(self) -> list[str]:
        own = str(os.getpid())
        listed = self._engine.list_labelled(LABEL)
        return [one.id for one in listed if one.labels.get(f"{LABEL}.pid") == own]

    @staticmethod
    def _read(container: str, group: str, file_v1: str, file_v2: str) -> str:
        root = Path("/sys/fs/cgroup")
        places = (
            root / group / "docker" / container / file_v1,
            root / "system.slice" / f"docker-{container}.scope" / file_v2,
            root / "docker" / container / file_v2,
        )
        return next(place for place in places if place.exists()).read_text("ascii")


def measure(
    pool: SandboxPool, containers: Containers, job: Job, repeats: int, tally: Tally
) -> None:
    """Run a job so many times, as many at once as there are cores."""
    cpu = containers.cpu_seconds() + time.process_time()
    start = time.perf_counter()
    with ThreadPoolExecutor(CORES) as threads:
        results = [one for some in threads.map(pool.run, [job] * repeats) for one in some]
    tally.wall_s += time.perf_counter() - start
    own = time.process_time()  # before the engine is asked for the containers
    tally.cpu_s += own + containers.cpu_seconds() - cpu
    tally.verdicts += len(results)
    assert all(one.status is ExecStatus.OK for one in results), results[0]


def run_hardened(count: int) -> float:
    """Seconds that so many tests take, each in a container of its own, as many at once as cores."""
    profile = ROOT / "sandbox" / "seccomp.json"
    command = [*HARDENED, f"--security-opt=seccomp={profile}", DEFAULT_IMAGE, "python3", "-c"]

    def one(_index: int) -> None:
        done = subprocess.run([*command, PROGRAM], input=b"41", capture_output=True, check=True)
        assert done.stdout == b"42\n"

    start = time.perf_counter()
    with ThreadPoolExecutor(CORES) as threads:
        list(threads.map(one, range(count)))
    return time.perf_counter() - start


def compare(pool: SandboxPool, containers: Containers, rounds: int) -> None:
    """The first table."""
    tallies = {name: Tally() for name in JOBS}
    ratios: list[float] = []
    hardened = Tally()
    for job in JOBS.values():
        pool.run(job)
    for _ in range(rounds):
        seconds = run_hardened(2 * CORES)
        hardened.wall_s += seconds
        hardened.verdicts += 2 * CORES
        for name, job in JOBS.items():
            before = Tally(tallies[name].verdicts, tallies[name].wall_s)
            measure(pool, containers, job, 6 if len(job.inputs) > 1 else 32, tallies[name])
            if name == next(iter(JOBS)):
                now = tallies[name]
                rate = (now.verdicts - before.verdicts) / (now.wall_s - before.wall_s)
                ratios.append(rate * seconds / (2 * CORES))
    print("| tests | verdicts/s | CPU, ms a verdict | verdicts/s that 2 idle cores allow |")
    print("| --- | --- | --- | --- |")
    print(f"| hardened docker run --rm, 1 test each | {hardened.rate:.2f} | | |")
    for name, tally in tallies.items():
        idle = 1000 * CORES / tally.cpu_ms
        print(f"| {name} | {tally.rate:.0f} | {tally.cpu_ms:.2f} | {idle:.0f} |")
    low, high = min(ratios), max(ratios)
    print(
        f"\nMedian ratio of the first two rates in {rounds} interleaved pairs: "
        f"{statistics.median(ratios):.0f}x ({low:.0f}x to {high:.0f}x).\n"
    )


def judge_references(title: str, file: Path) -> None:
    """Judge every reference solution of a published set, and print the row of the third table."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        rows = [read_code_row(json.loads(line), file.name) for line in lines]
    with closing(CodeVerifier()) as verifier:
        verifier.start()

        def judge(row: dict[str, Any]) -> bool:
            problem = Problem(
                id=str(row["id"]),
                prompt="",
                verifier="code",
                reference=row["answer"],
                source=file.name,
            )
            completion = f"```python\n{row['solution']}\n```"
            verdict = verifier.verify(Submission(problem=problem, completion=completion))
            return verdict.status is Status.CORRECT

        start = time.perf_counter()
        with ThreadPoolExecutor(2 * CORES) as threads:
            right = sum(threads.map(judge, rows))
        print(f"| {title} | {right}/{len(rows)} | {time.perf_counter() - start:.1f} |", flush=True)


def main() -> None:
    """Run all measurements and print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    default = os.environ.get("VERIGRAD_DATA", ROOT.parent / "shared" / "data")
    parser.add_argument("--data", type=Path, default=Path(default), help="folder of public data")
    parser.add_argument("--rounds", type=int, default=12, help="interleaved pairs (default: 12)")
    args = parser.parse_args()
    if not args.data.is_dir():
        parser.error(f"there is no folder {args.data}; set VERIGRAD_DATA or give --data")
    # None is retired: its CPU time would go with it.
    options = SandboxOptions(pool_size=CORES, max_runs_per_container=1_000_000)
    with closing(Engine()) as engine, closing(open_pool(options)) as pool:
        containers = Containers(engine)
        while pool.stats().launched < options.stock:
            time.sleep(0.1)
        at_rest = containers.resident_mb()
        compare(pool, containers, args.rounds)
    print(f"A container at rest holds {at_rest:.1f} MB.\n")
    print("| reference solutions | right | seconds |")
    print("| --- | --- | --- |")
    judge_references("HumanEval", args.data / "humaneval" / "HumanEval.jsonl.gz")
    judge_references("MBPP+", args.data / "mbppplus" / "MbppPlus-OriginFmt.jsonl.gz")


if __name__ == "__main__":
    main()
