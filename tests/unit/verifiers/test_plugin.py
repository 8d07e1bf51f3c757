"""A user's function as a verifier."""

from __future__ import annotations

import pytest

from verifiers.errors import BadReference, UserError
from verifiers.judge import Judge
from verifiers.problem import Problem, Submission
from verifiers.registry import build_verifier, plan_verifier
from verifiers.verdict import Reason, Status

CHECKS = """
import asyncio, os, time
from verifiers.verdict import Reason, Status, Verdict

def close_enough(completion, answer, tolerance=0.1):
    return abs(float(completion) - float(answer)) <= tolerance

def echo(completion, prompt, reference, problem_id, truncated, **columns):
    assert (prompt, reference, problem_id, truncated) == ("", "3", "p1", False)
    return float(columns["bonus"])

async def patient(completion, answer):
    await asyncio.sleep(0.01)
    return completion == answer

def plain(data_source, solution_str, ground_truth, extra_info=None): return 1.0
async def asking(data_source, solution_str, ground_truth, extra_info=None): return 1.0

def own_verdict(completion):
    return Verdict(status=Status.NO_ANSWER, score=0.0, reason=Reason.NOT_FOUND, verifier="mine@3")

def abstains(completion): return None
def raises(completion): raise KeyError("missing thing")
def not_a_number(completion): return float("nan")
def a_word(completion): return "yes"
def sleeps(completion): time.sleep(600)
def burns(completion):
    while True: pass
def eats(completion): return len(bytearray(10**12))
def dies(completion): os._exit(1)
def needs_unit(completion, unit): return True
def by_position(completion, /): return True
def rarest(completions, answer, truncated, bonus):
    assert truncated == [False] * len(completions)
    return [bonus + (completions.count(text) == 1) for text in completions]
async def group_none(completions): return [None for _ in completions]
def too_few(completions): return [1.0]
def no_list(completions): return 1.0
def group_raises(completions): return completions[99]
def both(completion, completions): return True
def talks(completion):
    print("hello")
    return True

not_a_function = 3
"""


@pytest.fixture(scope="module")
def checks(tmp_path_factory):
    path = tmp_path_factory.mktemp("plugin") / "my_checks.py"
    path.write_text(CHECKS)
    return path


@pytest.mark.parametrize(
    ("name", "completion", "status", "score", "reason"),
    [
        ("close_enough", "3.05", Status.CORRECT, 1.0, Reason.ACCEPTED),
        ("close_enough", "3.5", Status.INCORRECT, 0.0, Reason.REJECTED),
        ("close_enough", "three", Status.ERROR, None, Reason.VERIFIER_RAISED),
        ("echo", "x", Status.INCORRECT, 0.25, Reason.REJECTED),
        ("patient", "3", Status.CORRECT, 1.0, Reason.ACCEPTED),
        ("own_verdict", "x", Status.NO_ANSWER, 0.0, Reason.NOT_FOUND),
        ("abstains", "x", Status.ERROR, None, Reason.ABSTAINED),
        ("raises", "x", Status.ERROR, None, Reason.VERIFIER_RAISED),
        ("not_a_number", "x", Status.ERROR, None, Reason.VERIFIER_RAISED),
        ("a_word", "x", Status.ERROR, None, Reason.VERIFIER_RAISED),
        ("sleeps", "x", Status.ERROR, None, Reason.STALLED),
        ("burns", "x", Status.LIMIT, 0.0, Reason.DEADLINE),
        ("eats", "x", Status.LIMIT, 0.0, Reason.MEMORY),
        ("dies", "x", Status.ERROR, None, Reason.WORKER_DIED),
    ],
)
def test_what_a_function_returns_becomes_a_verdict(
    judge_with, checks, name, completion, status, score, reason
):
    limits = {"wall_limit_s": 0.5} if name == "sleeps" else {"cpu_limit_s": 0.5}
    verdict = judge_with(f"{checks}:{name}", "3", completion, columns={"bonus": 0.25}, **limits)
    assert (verdict.status, verdict.score, verdict.reason) == (status, score, reason), verdict


@pytest.mark.parametrize(
    ("prefix", "name", "options", "concurrency"),
    [
        ("", "close_enough", {}, 1),
        ("", "patient", {}, 16),
        ("", "patient", {"concurrency": 3}, 3),
        ("verl:", "plain", {}, 1),
        ("verl:", "asking", {}, 16),
    ],
)
def test_only_what_waits_runs_many_at_a_time_unasked(checks, prefix, name, options, concurrency):
    assert plan_verifier(f"{prefix}{checks}:{name}", options).concurrency == concurrency


@pytest.mark.parametrize("name", ["math", "regex", "json_schema", "plugin"])
def test_a_verifier_with_processes_has_at_least_one(checks, name):
    spec = f"{checks}:patient" if name == "plugin" else name
    assert plan_verifier(spec, {"concurrency": 5}).concurrency == 5
    with pytest.raises(UserError, match="'concurrency' is 0; it must be 1 or more"):
        build_verifier(spec, {"concurrency": 0})


@pytest.fixture
def judge_group(checks):
    """Verdicts of a function on all completions of a problem."""
    judges = []

    def judge(name, *completions):
        spec = f"{checks}:{name}"
        judges.append(Judge({spec: {}}))
        problem = Problem(
            id="p",
            prompt="",
            verifier=spec,
            reference="3",
            source="rows:1",
            columns={"bonus": 0.5},
        )
        return judges[-1].verify_batch(
            [Submission(problem=problem, completion=text) for text in completions]
        )

    yield judge
    for one in judges:
        one.close()


def test_a_function_of_completions_sees_the_whole_group(judge_group):
    verdicts = judge_group("rarest", "a", "b", "a")
    assert [verdict.score for verdict in verdicts] == [0.5, 1.5, 0.5]
    assert [verdict.status.value for verdict in verdicts] == ["incorrect", "correct", "incorrect"]
    assert [verdict.score for verdict in judge_group("rarest", "a")] == [1.5]
    assert {verdict.reason for verdict in judge_group("group_none", "a", "b")} == {Reason.ABSTAINED}


@pytest.mark.parametrize(
    ("name", "detail"),
    [
        ("too_few", "returned 1 values for 3 completions"),
        ("no_list", "returned 1.0 for 3 completions"),
        ("group_raises", "IndexError"),
    ],
)
def test_a_group_without_a_value_for_each_member_is_not_verified(judge_group, name, detail):
    verdicts = judge_group(name, "a", "b", "c")
    assert [verdict.score for verdict in verdicts] == [None] * 3
    assert all(detail in (verdict.detail or "") for verdict in verdicts)


def test_an_exception_keeps_its_traceback(judge_with, checks):
    verdict = judge_with(f"{checks}:raises", "3", "x")
    assert "missing thing" in verdict.detail
    assert "my_checks.py" in verdict.detail


def test_threshold_decides_what_is_right(judge_with, checks):
    verdict = judge_with(f"{checks}:echo", "3", "x", columns={"bonus": 0.5}, threshold=0.5)
    assert (verdict.status, verdict.score) == (Status.CORRECT, 0.5)


def test_what_a_function_prints_stays_off_standard_output(judge_with, checks, capfd):
    assert judge_with(f"{checks}:talks", "3", "x").status is Status.CORRECT
    assert capfd.readouterr().out == ""


def test_a_missing_column_is_named_with_the_columns_there_are(judge_with, checks):
    with pytest.raises(BadReference, match=r"rows:1.*'unit'.*its columns are colour"):
        judge_with(f"{checks}:needs_unit", "3", "x", columns={"colour": "red"})


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("{path}:nothing", r"no function 'nothing'; it defines .*close_enough"),
        ("{path}:not_a_function", "no function"),
        ("{path}:by_position", "by position"),
        ("{path}:both", "'completion' and for 'completions'"),
        ("nowhere.py:check", "does not exist"),
        ("no_such_package.module:check", "importing the module"),
        (":check", "not of the form"),
    ],
)
def test_a_wrong_spec_says_what_to_do(checks, spec, message):
    with pytest.raises(UserError, match=message):
        build_verifier(spec.format(path=checks), {})


def test_a_file_that_fails_to_import_is_the_users_error(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("import nothing_of_that_name\n")
    with pytest.raises(UserError, match="nothing_of_that_name"):
        build_verifier(f"{path}:check", {})


def test_a_module_is_found_in_the_current_directory(judge_with, tmp_path, monkeypatch):
    package = tmp_path / "their_package_of_checks"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "strict.py").write_text("def same(completion, answer): return completion == answer")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    assert judge_with("their_package_of_checks.strict:same", "a", "a").status is Status.CORRECT
