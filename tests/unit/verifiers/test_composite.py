"""The verifier `composite`: what its parts come to together."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from verifiers.asynchronous import averify_batch
from verifiers.composite import CompositeVerifier
from verifiers.errors import BadReference
from verifiers.judge import Judge
from verifiers.problem import Problem, Submission
from verifiers.registry import build_verifier
from verifiers.verdict import Reason, Status

MATH = {"verifier": "math", "options": {"extraction": "answer_tag"}}
FORMAT = {"verifier": "format", "weight": 0.25}
GOOD = "<think>2+2</think><answer>4</answer>"
UNFORMED = "<answer>4</answer>"
WRONG = "<think>2+2</think><answer>5</answer>"
SILENT = "<think>2+2</think>"

CHECKS = """
def pick(completion, answer):
    if "abstain" in completion:
        return None
    if "crash" in completion:
        raise RuntimeError("boom")
    return 0.5 if "half" in completion else 1.0

async def remote(completion):
    return 1.0

def fresh(completions):
    return [float(completions.count(text) == 1) for text in completions]
"""


@pytest.fixture
def pick(tmp_path):
    path = tmp_path / "checks.py"
    path.write_text(CHECKS)
    return {"verifier": f"{path}:pick", "name": "pick"}


@pytest.mark.parametrize(
    ("completion", "status", "score"),
    [
        (GOOD, Status.CORRECT, 1.0),
        (UNFORMED, Status.CORRECT, 0.8),
        (WRONG, Status.INCORRECT, 0.2),
        (SILENT, Status.NO_ANSWER, 0.0),
    ],
)
def test_a_weighted_sum_stays_within_0_and_1_and_the_main_part_has_the_status(
    judge_with, completion, status, score
):
    verdict = judge_with("composite", "4", completion, parts=[MATH, FORMAT])
    assert verdict.status is status
    assert verdict.score == pytest.approx(score)
    assert verdict.verifier == "composite@1"
    assert verdict.components["format.end"] == float(completion != SILENT)
    assert verdict.report["format"]["status"] in ("correct", "incorrect")


@pytest.mark.parametrize(
    ("completion", "status", "score"),
    [
        (GOOD, Status.CORRECT, 1.0),
        (UNFORMED, Status.INCORRECT, 0.0),
        (WRONG, Status.INCORRECT, 0.2),
    ],
)
def test_behind_a_shut_gate_nothing_counts(judge_with, completion, status, score):
    options = {"parts": [FORMAT, MATH], "mode": "gated", "main": "math"}
    verdict = judge_with("composite", "4", completion, **options)
    assert verdict.status is status
    assert verdict.score == pytest.approx(score)
    assert ("math" in verdict.components) == (completion != UNFORMED)


def test_style_behind_a_gate_of_correctness_earns_a_wrong_answer_nothing(judge_with):
    short = {"verifier": "length", "options": {"maximum": 1, "slope": 2}}
    options = {"parts": [{"verifier": "math"}, short], "mode": "gated"}
    scores = {
        completion: judge_with("composite", "4", completion, **options).score
        for completion in (r"\boxed{4}", r"it is \boxed{4}", r"\boxed{5}")
    }
    assert list(scores.values()) == [1.0, 0.5, 0.0]


@pytest.mark.parametrize(("completion", "score"), [("half", 0.5), ("half bad words", 0.25)])
def test_a_product(judge_with, pick, completion, score):
    short = {"verifier": "length", "options": {"maximum": 2, "slope": 2}}
    verdict = judge_with("composite", "4", completion, parts=[pick, short], mode="product")
    assert verdict.score == score


def test_the_first_part_that_can_read_the_reference_judges(judge_with):
    parts = [{"verifier": "numeric"}, {"verifier": "exact", "options": {"extraction": "hash"}}]
    options = {"parts": parts, "mode": "first_applicable"}
    number = judge_with("composite", "4", r"\boxed{4}", **options)
    words = judge_with("composite", "Paris, France", "#### Paris, France", **options)
    assert number.status is words.status is Status.CORRECT
    assert (list(number.components), list(words.components)) == (["numeric"], ["exact"])
    with pytest.raises(BadReference, match="rows:1: no part"):
        judge_with("composite", {}, "x", **options)


def test_a_part_that_abstains_passes_to_the_next_or_is_left_out(judge_with, pick):
    exact = {"verifier": "exact", "options": {"extraction": "whole"}}
    routed = judge_with(
        "composite", "abstain", "abstain", parts=[pick, exact], mode="first_applicable"
    )
    left_out = judge_with("composite", "abstain", "abstain", parts=[exact, pick])
    assert (routed.score, left_out.score) == (1.0, 1.0)
    assert left_out.report["pick"] == {"status": "error", "reason": "abstained"}


def test_when_the_main_part_abstains_nothing_is_verified(judge_with, pick):
    short = {"verifier": "length", "options": {"maximum": 9}}
    for mode in ("weighted_sum", "gated", "product", "first_applicable"):
        parts = [pick] if mode == "first_applicable" else [pick, short]
        verdict = judge_with("composite", "4", "abstain", parts=parts, mode=mode)
        assert (verdict.score, verdict.reason) == (None, Reason.ABSTAINED), mode


@pytest.mark.parametrize("mode", ["weighted_sum", "gated", "product"])
def test_a_part_that_fails_never_becomes_a_reward(judge_with, pick, mode):
    short = {"verifier": "length", "options": {"maximum": 9}}
    for parts in ([pick, short], [short, pick]):
        verdict = judge_with("composite", "4", "crash", parts=parts, mode=mode)
        assert (verdict.status, verdict.score) == (Status.ERROR, None)
        assert "boom" in (verdict.detail or "")


def test_each_part_may_have_a_reference_of_its_own(judge_with):
    form = {"verifier": "regex", "reference_column": "form", "options": {"extraction": "whole"}}
    columns = {"form": r".*\\boxed\{\d\}\."}
    parts = [{"verifier": "math"}, form]
    for completion, score in ((r"So \boxed{4}.", 1.0), (r"So \boxed{4}!", 0.5)):
        verdict = judge_with("composite", "4", completion, parts=parts, columns=columns)
        assert verdict.score == score
    with pytest.raises(BadReference, match=r"rows:1.*'form'"):
        judge_with("composite", "4", "x", parts=parts)


def test_a_bad_reference_of_any_part_is_found_before_training(judge_with):
    with pytest.raises(BadReference, match="rows:1"):
        judge_with("composite", "4", "x", parts=[MATH, {"verifier": "json_schema"}])


def test_composites_nest(judge_with):
    inner = {"verifier": "composite", "options": {"parts": [MATH, FORMAT]}, "name": "answer"}
    short = {"verifier": "length", "options": {"maximum": 9}}
    verdict = judge_with("composite", "4", UNFORMED, parts=[inner, short], mode="product")
    assert verdict.score == pytest.approx(0.8)
    assert verdict.components["answer.format.end"] == 1.0


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"parts": [MATH, FORMAT]}, 4),
        ({"parts": [{**MATH, "reference_column": "gold"}, FORMAT]}, 4),
        ({"parts": [FORMAT, MATH], "mode": "gated", "main": "math"}, 0),
        ({"parts": [MATH], "mode": "first_applicable"}, 0),
        ({"parts": [MATH, {"verifier": "json_schema"}]}, 0),
    ],
)
def test_known_answers_are_checked_where_the_main_part_alone_decides(options, count):
    judge = Judge({"composite": options})
    assert judge.self_check() == []
    judge.close()
    verifier = build_verifier("composite", options)
    assert isinstance(verifier, CompositeVerifier)
    assert len(verifier.examples()) == count
    verifier.close()


@pytest.mark.parametrize(
    ("mode", "scores"),
    [
        ("weighted_sum", [0.5, 0.5, 1.0, 0.5]),
        ("gated", [0.5, 0.5, 1.0, 0.0]),
        ("product", [0.0, 0.0, 1.0, 0.0]),
    ],
)
def test_a_part_that_judges_groups_sees_all_members(tmp_path, mode, scores):
    path = tmp_path / "checks.py"
    path.write_text(CHECKS)
    parts = [{"verifier": "math"}, {"verifier": f"{path}:fresh", "name": "fresh"}]
    judge = Judge({"composite": {"parts": parts, "mode": mode}})
    assert judge.wants_group("composite")
    problem = Problem(id="p", prompt="", verifier="composite", reference="4", source="rows:1")
    completions = ["\\boxed{4}", "\\boxed{4}", "\\boxed{4.0}", "\\boxed{5}"]
    verdicts = judge.verify_batch(
        [Submission(problem=problem, completion=text) for text in completions]
    )
    assert [verdict.score for verdict in verdicts] == scores
    assert [verdict.components.get("fresh") for verdict in verdicts[:3]] == [0.0, 0.0, 1.0]
    judge.close()


def test_each_part_keeps_to_its_own_number_at_a_time(tmp_path, monkeypatch):
    path = tmp_path / "checks.py"
    path.write_text(CHECKS)
    remote = {"verifier": f"{path}:remote", "name": "remote"}
    judge = Judge({"composite": {"parts": [remote, {"verifier": "exact"}]}})
    composite: Any = judge._verifiers["composite"]
    assert composite.concurrency == 16

    # Each waits for company, which the second part may never have.
    company, alone = threading.Barrier(4), []
    first, second = (part.verifier for part in composite._parts)
    verify_first, verify_second = first.verify_batch, second.verify_batch

    def in_company(submissions):
        company.wait(timeout=60)
        return verify_first(submissions)

    def by_itself(submissions):
        alone.append(True)
        seen = len(alone)
        verdicts = verify_second(submissions)
        alone.pop()
        assert seen == 1
        return verdicts

    monkeypatch.setattr(first, "verify_batch", in_company)
    monkeypatch.setattr(second, "verify_batch", by_itself)
    submissions = [
        Submission(
            problem=Problem(
                id=str(number), prompt="", verifier="composite", reference="4", source="rows:1"
            ),
            completion="4",
        )
        for number in range(4)
    ]
    verdicts = asyncio.run(averify_batch(judge, submissions, max_concurrency=4))
    judge.close()
    assert {verdict.status for verdict in verdicts} == {Status.CORRECT}
