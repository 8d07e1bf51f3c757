"""What a step of long completions costs between engines, driver, learner and disk.

CPU seconds for a step of `--step` completions, scaled up from a few; each is also done as with a
Python number for every token and the standard library's JSON.
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

# The folder of this file holds verifiers.py, which must not hide the package.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from grpo.packed import Spans, pack_logprobs, pack_token_ids  # noqa: E402
from grpo.rollout_rows import describe_member  # noqa: E402
from grpo.run_directory import RunDirectory  # noqa: E402
from grpo.staleness import compute_staleness_metrics  # noqa: E402
from grpo.values import Rollout, ScoredGroup, ScoredRollout  # noqa: E402
from verifiers.problem import Problem  # noqa: E402
from verifiers.verdict import Reason, Status, Verdict  # noqa: E402

GROUP = 8
VOCABULARY = 150_000
CHARS_A_TOKEN = 4
REPEATS = 3


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--completions", type=int, default=16, help="measured; a multiple of 8")
    parser.add_argument("--tokens", type=int, default=16_000, help="of each")
    parser.add_argument("--step", type=int, default=1024, help="completions of the step")
    args = parser.parse_args()
    packed = make_groups(args.completions, args.tokens)
    plain = [unpack(group) for group in packed]
    scale = args.step / args.completions
    print(f"{args.step} completions of {args.tokens} tokens, CPU seconds")
    print("| | plain | packed | ratio |\n| --- | ---: | ---: | ---: |")
    sizes: dict[str, tuple[int, int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory(Path(folder))
        old, new = pickle.dumps(plain, 5), pickle.dumps(packed, 5)
        sizes["rollouts between processes"] = len(old), len(new)
        compare("pickle", lambda: pickle.dumps(plain, 5), lambda: pickle.dumps(packed, 5), scale)
        compare("unpickle", lambda: pickle.loads(old), lambda: pickle.loads(new), scale)  # noqa: S301 - made here
        compare(
            "staleness metrics",
            lambda: count_ages(plain),
            lambda: compute_staleness_metrics(packed, 1),
            scale,
        )
        whole = write_plainly(plain)
        compare(
            "write",
            lambda: write_plainly(plain),
            lambda: directory.write_rollouts(1, packed),
            scale,
        )
        directory.write_rollouts(1, packed)
        sizes["rollouts on disk"] = len(whole), size_of(directory, "step-000001.jsonl")
        compare(
            "write, compressed",
            lambda: write_plainly(plain),
            lambda: directory.write_rollouts(2, packed, compressed=True),
            scale,
        )
        directory.write_rollouts(2, packed, compressed=True)
        sizes["compressed"] = len(whole), size_of(directory, "step-000002.jsonl.gz")
    print("\n| MB | plain | packed | ratio |\n| --- | ---: | ---: | ---: |")
    for name, (before, after) in sizes.items():
        print_row(name, before * scale / 1e6, after * scale / 1e6, digits=0)


def make_groups(num_completions: int, num_tokens: int) -> list[ScoredGroup]:
    """Groups as the driver gets them from engines and verifiers."""
    generator = np.random.default_rng(0)
    verdict = Verdict(status=Status.CORRECT, score=1.0, reason=Reason.DIFFERENT, verifier="math@1")
    groups: list[ScoredGroup] = []
    for number in range(num_completions // GROUP):
        problem = Problem(
            id=f"p{number}", prompt="?", verifier="math", reference="1", source="made:1"
        )
        members: list[ScoredRollout] = []
        for member in range(GROUP):
            # Reasoning models are sure of about half of their tokens.
            sure = generator.random(num_tokens) < 0.5
            nats = np.where(sure, 1e-6, 1.0) * generator.exponential(0.3, num_tokens)
            rollout = Rollout(
                problem_id=problem.id,
                member=member,
                prompt_ids=pack_token_ids(generator.integers(0, VOCABULARY, 200)),
                completion_ids=pack_token_ids(generator.integers(0, VOCABULARY, num_tokens)),
                logprobs=pack_logprobs(-nats),
                text=generator.bytes(CHARS_A_TOKEN * num_tokens // 2).hex(),
                finish_reason="stop",
                policy_versions=Spans([(0, num_tokens // 2), (1, num_tokens - num_tokens // 2)]),
                seed=member,
            )
            members.append(ScoredRollout(rollout=rollout, verdict=verdict, reward=1.0))
        groups.append(ScoredGroup(problem=problem, members=tuple(members)))
    return groups


def unpack(group: ScoredGroup) -> ScoredGroup:
    """The same with a Python number for every token."""
    members = [
        replace(
            member,
            rollout=replace(
                member.rollout,
                prompt_ids=tuple(member.rollout.prompt_ids),
                completion_ids=tuple(member.rollout.completion_ids),
                logprobs=tuple(member.rollout.logprobs),
                policy_versions=tuple(member.rollout.policy_versions),
            ),
        )
        for member in group.members
    ]
    return replace(group, members=tuple(members))


def count_ages(groups: list[ScoredGroup]) -> Counter[int]:
    """Staleness token by token."""
    members = [member for group in groups for member in group.members]
    return Counter(1 - version for m in members for version in m.rollout.policy_versions)


def write_plainly(groups: list[ScoredGroup]) -> str:
    """The lines of a step by the standard library."""
    rows: list[str] = []
    for group in groups:
        for index, member in enumerate(group.members):
            tokens = {
                name: getattr(member.rollout, name)
                for name in ("prompt_ids", "completion_ids", "logprobs", "policy_versions")
            }
            rows.append(json.dumps(describe_member(1, group, index) | tokens, ensure_ascii=False))
    return "\n".join(rows)


def size_of(directory: RunDirectory, name: str) -> int:
    """Bytes of a step's file."""
    return (directory.path / "rollouts" / name).stat().st_size


def compare(name: str, plain: Callable[[], Any], packed: Callable[[], Any], scale: float) -> None:
    """Print the CPU seconds of the fastest of some turns each, taken in turns."""
    seconds = [(measure(plain), measure(packed)) for _ in range(REPEATS)]
    before, after = (min(times) * scale for times in zip(*seconds, strict=True))
    print_row(name, before, after, digits=2)


def measure(job: Callable[[], Any]) -> float:
    """CPU seconds of a job."""
    begun = time.process_time()
    job()
    return time.process_time() - begun


def print_row(name: str, before: float, after: float, *, digits: int) -> None:
    """Print a row of a table."""
    ratio = before / after
    shown = f"{ratio:.0f}" if ratio > 10 else f"{ratio:.1f}"
    print(f"| {name} | {before:.{digits}f} | {after:.{digits}f} | {shown} |")


if __name__ == "__main__":
    main()
