"""What every verifier must do, whatever it judges. (`code` has its own, which needs Docker.)"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from verifiers.errors import BadReference
from verifiers.judge import Judge
from verifiers.problem import Problem, Submission
from verifiers.protocol import Verifier
from verifiers.registry import build_verifier
from verifiers.verdict import Status, Verdict

PLUGIN = "def check(completion, answer): return completion.strip().endswith(str(answer))\n"
# Options and a reference for each; `reasoning_gym` needs its package, and has a test of its own.
SUBJECTS: dict[str, tuple[dict[str, Any], Any]] = {
    "math": ({}, "42"),
    "exact": ({}, "42"),
    "choice": ({}, "B"),
    "numeric": ({}, "42"),
    "regex": ({}, "4[0-9]|B"),
    "json_schema": ({}, {"const": 42}),
    "countdown": ({}, {"numbers": [3, 4, 8], "target": 24}),
    "ifeval": ({}, {"instruction_id_list": ["startend:quotation"], "kwargs": [{}]}),
    "format": ({}, None),
    "length": ({"minimum": 2_000_000, "unit": "characters"}, None),
    "composite": ({"parts": [{"verifier": "math"}, {"verifier": "format", "weight": 0.1}]}, "42"),
}
WITH_EXTRACTION = ["math", "exact", "choice", "numeric", "regex", "json_schema", "countdown"]
WITHOUT_REFERENCE = ["format", "length"]
NOTHING_SPECIAL = "I do not know."

COMPLETIONS = {
    "empty": "",
    "spaces": " \n\t ",
    "none": "None",
    "nul": "\0\\boxed{4\0}",
    "lone surrogate": "\ud800 \\boxed{\udfff}",
    "control": "".join(map(chr, range(32))),
    "emoji": "\\boxed{\U0001f600}",
    "right to left": "\\boxed{\u202e24}",
    "nested braces": "\\boxed{" * 500 + "1" + "}" * 500,
    "unclosed": "\\boxed{" * 5000,
    "tower": "\\boxed{9^{9^{9^{9}}}}",
    "digits": f"\\boxed{{{'9' * 1_000_000}}}",
    "megabyte": "lorem ipsum " * 90_000,
    "megabyte box": f"\\boxed{{{'x+' * 500_000}}}",
    "think": "<think>" * 1000,
    "eval": "\\boxed{__import__('os').system('false')}",
    "format": "\\boxed{%s %d {0} {x}}",
    "regex": f"\\boxed{{{'(a+)+$' * 50}}}",
    "only backslashes": "\\" * 1001,
    "latex noise": "\\boxed{\\left( \\frac{ \\sqrt[ ^ _ & \\\\ \\end{x} }",
}


@pytest.fixture(scope="module", params=[*SUBJECTS, "plugin"])
def subject(request, tmp_path_factory):
    """A verifier and a problem of its kind."""
    name = request.param
    if name == "plugin":
        path = tmp_path_factory.mktemp("contract") / "checks.py"
        path.write_text(PLUGIN)
        name = f"{path}:check"
    options, reference = SUBJECTS.get(name, ({}, "42"))
    verifier = build_verifier(name, options)
    problem = Problem(id="p", prompt="", verifier=name, reference=reference, source="rows:1")
    verifier.prepare(problem)
    yield verifier, problem
    verifier.close()


def judge(subject, completion):
    verifier, problem = subject
    return verifier.verify(Submission(problem=problem, completion=completion))


def test_it_is_a_verifier(subject):
    verifier, _ = subject
    assert isinstance(verifier, Verifier)
    assert verifier.version >= 1
    assert verifier.placement in ("worker", "node")


@pytest.mark.parametrize("name", COMPLETIONS)
def test_no_completion_makes_it_raise(subject, name):
    verdict = judge(subject, COMPLETIONS[name])
    assert isinstance(verdict, Verdict)
    assert verdict.verified, verdict
    assert verdict.status is not Status.CORRECT
    assert verdict.seconds < 10


def test_a_verdict_names_its_verifier_and_has_a_score_when_verified(subject):
    verifier, _ = subject
    verdict = judge(subject, NOTHING_SPECIAL)
    assert verdict.verifier == f"{verifier.name}@{verifier.version}"
    assert verdict.score == 0.0
    assert verdict.seconds > 0


def test_the_same_submission_gets_the_same_verdict(subject):
    for completion in (NOTHING_SPECIAL, "\\boxed{42}", "\\boxed{B}"):
        first, second = judge(subject, completion), judge(subject, completion)
        assert (first.status, first.reason, first.score) == (
            second.status,
            second.reason,
            second.score,
        )


def test_it_works_from_several_threads(subject):
    expected = judge(subject, NOTHING_SPECIAL).status
    found = []

    def work():
        found.extend(judge(subject, NOTHING_SPECIAL).status for _ in range(5))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 20


@pytest.mark.parametrize("name", SUBJECTS)
def test_its_examples_get_their_status(name):
    options, _ = SUBJECTS[name]
    verifier = build_verifier(name, options)
    assert {e.status for e in verifier.examples()} >= {Status.CORRECT, Status.INCORRECT}
    verifier.close()
    built = Judge({name: options})
    assert built.self_check() == []
    built.close()


@pytest.mark.parametrize("name", WITH_EXTRACTION)
@pytest.mark.parametrize("extraction", ["answer_tag", "hash", "answer_line", "whole"])
def test_examples_follow_the_extraction_policy(name, extraction):
    built = Judge({name: {"extraction": extraction}})
    assert built.self_check() == []
    built.close()


@pytest.mark.parametrize("name", [name for name in SUBJECTS if name not in WITHOUT_REFERENCE])
def test_an_unreadable_reference_is_bad_gold_with_its_row(name):
    verifier = build_verifier(name, SUBJECTS[name][0])
    problem = Problem(id="p", prompt="", verifier=name, reference={}, source="rows:17")
    with pytest.raises(BadReference, match="rows:17"):
        verifier.prepare(problem)
    verdict = verifier.verify(Submission(problem=problem, completion="\\boxed{1}"))
    assert (verdict.status, verdict.score) == (Status.BAD_GOLD, None)
    verifier.close()


def test_a_verifier_that_raises_is_an_error_never_a_score(monkeypatch):
    built = Judge({"exact": {}})
    monkeypatch.setattr(built._verifiers["exact"], "verify", lambda _: 1 / 0)
    problem = Problem(id="p", prompt="", verifier="exact", reference="1", source="rows:1")
    verdict = built.verify(Submission(problem=problem, completion="1"))
    assert (verdict.status, verdict.score) == (Status.ERROR, None)
    assert "ZeroDivisionError" in (verdict.detail or "")
    built.close()
