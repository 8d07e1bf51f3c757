"""A verifier's verdicts in fresh processes with different hash seeds.

Run as `python -m verifiers.hash_seeds` with pickled spec, options and submissions on standard
input.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from verifiers.judge import Judge
from verifiers.plugin import FunctionVerifier, call_function
from verifiers.problem import Submission
from verifiers.registry import build_verifier

SEEDS = (0, 1, 12345)
LIMIT_S = 120.0


def judge_under_hash_seeds(
    spec: str, options: Mapping[str, Any], submissions: Sequence[Submission]
) -> list[list[str]]:
    """For each seed a line for each submission, equal where the verdicts are."""
    job = pickle.dumps((spec, dict(options), list(submissions)))
    runs = []
    for seed in SEEDS:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "verifiers.hash_seeds"],
            input=job,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "PYTHONHASHSEED": str(seed),
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
            timeout=LIMIT_S,
            check=True,
        )
        runs.append(json.loads(done.stdout))
    return runs


def main() -> None:
    """Judge what standard input brings, and print a line for each as a JSON list."""
    spec, options, submissions = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own parent
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a user's function prints is not an answer
    verifier = build_verifier(spec, options)
    if isinstance(verifier, FunctionVerifier):
        # Directly: the verifier's own worker would have a hash seed of its own.
        lines = [
            repr(call_function(verifier.name, verifier.select_arguments([s]))) for s in submissions
        ]
    else:
        judge = Judge({spec: options})
        lines = [repr(replace(judge.verify(s), seconds=0.0)) for s in submissions]
        judge.close()
    verifier.close()
    with answers:
        json.dump(lines, answers)


if __name__ == "__main__":
    main()
