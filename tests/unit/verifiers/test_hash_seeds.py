"""Verdicts do not depend on the order of Python's sets."""

from __future__ import annotations

import json
from pathlib import Path

from verifiers.hash_seeds import SEEDS, judge_under_hash_seeds
from verifiers.problem import Problem, Submission

PAIRS = Path(__file__).with_name("math_pairs.jsonl")


def test_mathematical_verdicts_under_several_hash_seeds():
    submissions = []
    for line in PAIRS.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        problem = Problem(
            id="0", prompt="", verifier="math", reference=row["gold"], source=PAIRS.name
        )
        completion = f"\\boxed{{{row['answer']}}}"
        submissions.append(Submission(problem=problem, completion=completion))
    first, *others = judge_under_hash_seeds("math", {}, submissions)
    assert len(first) == len(submissions)
    assert len(others) == len(SEEDS) - 1
    for other in others:
        differing = [pair for pair in zip(first, other, strict=True) if pair[0] != pair[1]]
        assert differing == []


def test_a_function_that_follows_the_hash_seed_is_seen(tmp_path):
    checks = tmp_path / "checks.py"
    checks.write_text("def check(completion): return float(hash(completion))\n")
    spec = f"{checks}:check"
    problem = Problem(id="0", prompt="", verifier=spec, reference=None, source="row")
    runs = judge_under_hash_seeds(spec, {}, [Submission(problem=problem, completion="a")])
    assert len({run[0] for run in runs}) == len(SEEDS)
