"""Short ways to a verdict."""

from __future__ import annotations

import pytest

from verifiers.problem import Problem, Submission
from verifiers.registry import build_verifier


def make_problem(verifier, reference, **columns):
    return Problem(
        id="p1", prompt="", verifier=verifier, reference=reference, source="rows:1", columns=columns
    )


def make_submission(verifier, reference, completion, *, truncated=False, **columns):
    problem = make_problem(verifier, reference, **columns)
    return Submission(problem=problem, completion=completion, truncated=truncated)


@pytest.fixture(scope="session")
def judge_math():
    """The verdict of `math` on a completion; one verifier for each set of options."""
    built = {}

    def judge(reference, completion, *, truncated=False, **options):
        key = tuple(sorted(options.items()))
        if key not in built:
            built[key] = build_verifier("math", options)
        submission = make_submission("math", reference, completion, truncated=truncated)
        return built[key].verify(submission)

    yield judge
    for verifier in built.values():
        verifier.close()


@pytest.fixture
def judge_with():
    """The verdict of any verifier, built for this test."""
    built = []

    def judge(spec, reference, completion, *, columns=None, truncated=False, **options):
        verifier = build_verifier(spec, options)
        built.append(verifier)
        submission = make_submission(
            spec, reference, completion, truncated=truncated, **(columns or {})
        )
        verifier.prepare(submission.problem)
        return verifier.verify(submission)

    yield judge
    for verifier in built:
        verifier.close()
