"""The suite that authors of verifiers run on theirs."""

from __future__ import annotations

import pytest

from verifiers.conformance import KnownAnswer, run_conformance
from verifiers.problem import Problem, Submission

RULES = [
    "can be built",
    "returns a legal value",
    "knows right from wrong",
    "never raises for hostile completions",
    "keeps to its limits",
    "gives the same verdict again, also from threads",
    "gives the same verdict for every hash seed",
]

CHECKS = """
import os, re, time
from verifiers.verdict import Reason, Status, Verdict

def good(completion, answer):
    words = completion.split()
    return bool(words) and words[-1] == str(answer)

def reads_integers(completion, answer):
    return int(completion) == int(answer) if completion.strip().isdigit() else 0.0

def depends_on_hashes(completion, answer):
    return min({"one", "two", "three", completion}, key=hash) == completion

def takes_all(completion, answer): return True

def counts(completion, answer, seen=[]):
    seen.append(completion)
    return float(len(seen))

def sleeps_on_braces(completion, answer):
    if completion.startswith("{{{"): time.sleep(60)
    return completion == answer

def dies_of_nul(completion, answer):
    if "\\0" in completion: os._exit(1)
    return completion == answer

def writes_what_is_no_json(completion, answer):
    return Verdict(status=Status.CORRECT if completion == answer else Status.INCORRECT, score=1.0,
                   reason=Reason.ACCEPTED, verifier="x@1", report={"set": {1, 2}})

def needs_unit(completion, unit): return True
"""


@pytest.fixture(scope="module")
def checks(tmp_path_factory):
    path = tmp_path_factory.mktemp("conformance") / "checks.py"
    path.write_text(CHECKS)
    return path


def outcomes(spec, *known, **options):
    return {check.name: check for check in run_conformance(spec, options, known)}


def known(spec, completion="", *, reference="42", right=None):
    problem = Problem(id="0", prompt="", verifier=spec, reference=reference, source="row")
    return KnownAnswer(submission=Submission(problem=problem, completion=completion), right=right)


def test_a_good_function_passes_every_rule(checks):
    spec = f"{checks}:good"
    found = outcomes(
        spec, known(spec, "it is 42", right=True), known(spec, "42 or 43", right=False)
    )
    assert list(found) == RULES
    assert all(check.passed for check in found.values()), found
    assert found["knows right from wrong"].detail == "2 known answers"


def test_a_built_in_verifier_passes_every_rule():
    found = outcomes("exact", known("exact"))
    assert all(check.passed for check in found.values()), found


@pytest.mark.parametrize(
    ("name", "rule", "fragment"),
    [
        ("reads_integers", "never raises for hostile completions", "a million digits: ValueError"),
        ("depends_on_hashes", "gives the same verdict for every hash seed", "0.0 or 1.0"),
        ("takes_all", "knows right from wrong", "every ordinary completion is right"),
        ("counts", "gives the same verdict again, also from threads", "'42': correct"),
        ("sleeps_on_braces", "keeps to its limits", "100,000 open braces: waited"),
        ("dies_of_nul", "never raises for hostile completions", "a NUL character"),
        ("writes_what_is_no_json", "returns a legal value", "cannot be written down"),
    ],
)
def test_a_broken_rule_is_named(checks, name, rule, fragment):
    spec = f"{checks}:{name}"
    limits = {"wall_limit_s": 1.0} if name == "sleeps_on_braces" else {}
    check = outcomes(spec, known(spec), **limits)[rule]
    assert check.passed is False
    assert fragment in check.detail


def test_a_known_answer_that_is_judged_wrongly(checks):
    spec = f"{checks}:good"
    check = outcomes(spec, known(spec, "42!", right=True))["knows right from wrong"]
    assert check.passed is False
    assert "'42!' is right for '42', not incorrect" in check.detail


def test_what_stops_the_suite(checks):
    spec = f"{checks}:needs_unit"
    found = outcomes(spec, known(spec))
    assert [(check.name, check.passed) for check in found.values()] == [
        ("can be built", True),
        ("takes the row", False),
    ]
    assert "'unit'" in found["takes the row"].detail
    found = outcomes(f"{checks}:nothing", known("x"))
    assert found["can be built"].passed is False
    assert "no function 'nothing'" in found["can be built"].detail
