"""The `code` verifier without an engine: what it makes of completions, references and reports."""

import pytest

import verifiers.code
from sandbox.errors import Cause, SandboxUnavailable
from sandbox.result import Call, ExecResult, ExecStatus, Flag, InfraCause, infra_result
from verifiers.code import CodeVerifier
from verifiers.errors import BadReference, UserError
from verifiers.problem import Problem, Submission
from verifiers.protocol import Verifier
from verifiers.verdict import Reason, Status

TESTS = [{"kind": "function", "entry_point": "f", "args": [x], "expected": x + 1} for x in range(4)]
RIGHT = [ExecResult(status=ExecStatus.OK, value=x + 1) for x in range(4)]


def failed(status, **more):
    return ExecResult(status=status, **more)


class FakePool:
    def __init__(self, results):
        self.results = results
        self.jobs = []
        self.closed = False

    def run(self, job):
        self.jobs.append(job)
        return tuple(self.results)

    def close(self):
        self.closed = True


@pytest.fixture
def judge(monkeypatch):
    def judge_completion(completion, results, *, truncated=False, **options):
        pool = FakePool(results)
        monkeypatch.setattr(verifiers.code, "open_pool", lambda _options: pool)
        verifier = CodeVerifier(**options)
        verdict = verifier.verify(
            Submission(problem=problem(), completion=completion, truncated=truncated)
        )
        verifier.close()
        assert pool.closed == bool(pool.jobs)
        return verdict, pool

    return judge_completion


def problem(reference=TESTS):
    return Problem(id="p", prompt="", verifier="code", reference=reference, source="data.jsonl:7")


BLOCK = "```python\ndef f(x): return x + 1\n```"


def test_it_is_a_verifier():
    verifier = CodeVerifier()
    assert isinstance(verifier, Verifier)
    assert verifier.placement == "node"


def test_a_program_that_passes_is_correct(judge):
    verdict, pool = judge(BLOCK, RIGHT)
    assert (verdict.status, verdict.reason) == (Status.CORRECT, Reason.TESTS_PASSED)
    assert (verdict.score, verdict.verifier) == (1.0, "code@1")
    assert verdict.extracted == "def f(x): return x + 1\n"
    assert [one["verdict"] for one in verdict.report["tests"]] == ["AC"] * 4
    assert [job.num_runs for job in pool.jobs] == [4]
    assert pool.jobs[0].calls[2] == Call(function="f", arguments=(2,))


@pytest.mark.parametrize(
    ("result", "status", "reason"),
    [
        (failed(ExecStatus.OK, value=99), Status.INCORRECT, Reason.TESTS_FAILED),
        (failed(ExecStatus.RE), Status.INCORRECT, Reason.TESTS_FAILED),
        (failed(ExecStatus.CE), Status.INCORRECT, Reason.TESTS_FAILED),
        (failed(ExecStatus.TLE), Status.LIMIT, Reason.DEADLINE),
        (failed(ExecStatus.MLE), Status.LIMIT, Reason.MEMORY),
        (failed(ExecStatus.OLE), Status.LIMIT, Reason.TOO_LONG),
        (infra_result(InfraCause.STALLED, ""), Status.ERROR, Reason.STALLED),
        (infra_result(InfraCause.LOST, ""), Status.ERROR, Reason.WORKER_DIED),
        (infra_result(InfraCause.UNAVAILABLE, ""), Status.ERROR, Reason.SANDBOX_UNAVAILABLE),
        (infra_result(InfraCause.HARNESS, ""), Status.ERROR, Reason.SANDBOX_UNAVAILABLE),
    ],
)
@pytest.mark.parametrize("scoring", ["all", "fraction"])
def test_what_a_failing_test_means(judge, result, status, reason, scoring):
    verdict, _ = judge(BLOCK, [RIGHT[0], RIGHT[1], result, RIGHT[3]], scoring=scoring)
    assert (verdict.status, verdict.reason) == (status, reason)
    if status is Status.ERROR:
        assert verdict.score is None
    else:
        assert verdict.score == (0.75 if scoring == "fraction" else 0.0)
    assert verdict.detail.startswith("test 2:")


def test_judging_in_parts_runs_every_test(judge):
    assert judge(BLOCK, RIGHT, scoring="all")[1].jobs[0].stop_early
    assert not judge(BLOCK, RIGHT, scoring="fraction")[1].jobs[0].stop_early


def test_flags_are_reported(judge):
    flagged = failed(ExecStatus.OK, value=1, flags=frozenset({Flag.SV}))
    verdict, _ = judge(BLOCK, [flagged, *RIGHT[1:]])
    assert verdict.status is Status.CORRECT
    assert verdict.report["tests"][0]["flags"] == ["SV"]


@pytest.mark.parametrize(
    ("completion", "truncated", "reason"),
    [
        ("I do not know.", False, Reason.NO_CODE),
        ("Let me think", True, Reason.TRUNCATED),
        (f"<think>{BLOCK}", False, Reason.UNFINISHED_REASONING),
        (f"<think>{BLOCK}</think> So it is done.", False, Reason.NO_CODE),
    ],
)
def test_no_program_is_no_answer(judge, completion, truncated, reason):
    verdict, pool = judge(completion, RIGHT, truncated=truncated)
    assert (verdict.status, verdict.reason, verdict.score) == (Status.NO_ANSWER, reason, 0.0)
    assert pool.jobs == []


def test_the_whole_text_can_be_the_program(judge):
    verdict, pool = judge("def f(x): return x + 1", RIGHT, extract="text")
    assert verdict.status is Status.CORRECT
    assert pool.jobs[0].program == "def f(x): return x + 1"


def test_a_program_of_a_megabyte_is_not_run(judge):
    verdict, pool = judge("x = 1\n" * 200_000, RIGHT, extract="text")
    assert verdict.reason is Reason.TOO_LONG
    assert pool.jobs == []


def test_programs_of_problems_that_ask_for_more_memory_have_containers_of_their_own(monkeypatch):
    usual, large = FakePool(RIGHT), FakePool(RIGHT)
    monkeypatch.setattr(verifiers.code, "open_pool", lambda _options: usual)
    monkeypatch.setattr(verifiers.code, "pool_for_large_programs", lambda _options: large)
    monkeypatch.setattr(CodeVerifier, "_check_engine_once", lambda _self: None)
    verifier = CodeVerifier(memory_mb=512)
    for memory_mb in (512, 513, 2048):
        asking = problem({"tests": TESTS, "limits": {"memory_mb": memory_mb}})
        verifier.prepare(asking)
        verdict = verifier.verify(Submission(problem=asking, completion=BLOCK))
        assert verdict.status is Status.CORRECT
    verifier.close()
    assert [job.limits.memory_mb for job in usual.jobs] == [512]
    assert [job.limits.memory_mb for job in large.jobs] == [513, 2048]
    assert usual.closed
    assert large.closed


def test_no_sandbox_is_no_verdict(monkeypatch):
    def refuse(_options):
        raise SandboxUnavailable(Cause.NO_ENGINE, "start it")

    monkeypatch.setattr(verifiers.code, "open_pool", refuse)
    verdict = CodeVerifier().verify(Submission(problem=problem(), completion=BLOCK))
    assert (verdict.status, verdict.reason) == (Status.ERROR, Reason.SANDBOX_UNAVAILABLE)
    assert verdict.detail == "start it"


@pytest.mark.parametrize(
    ("reference", "named"),
    [
        ([{"kind": "function", "args": [1], "expected": 1}], "tests[0].entry_point"),
        ({"tests": TESTS, "limits": {"memory_mb": 99_999}}, "memory_mb"),
        ("42", "the reference"),
    ],
)
def test_a_bad_reference_is_named_by_row_and_field(monkeypatch, reference, named):
    monkeypatch.setattr(CodeVerifier, "_check_engine_once", lambda _self: None)
    with pytest.raises(BadReference) as caught:
        CodeVerifier().prepare(problem(reference))
    assert "data.jsonl:7" in str(caught.value)
    assert named in str(caught.value)


def test_no_engine_is_found_out_before_anything_is_judged(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    with pytest.raises(SandboxUnavailable, match="No Docker engine"):
        CodeVerifier().prepare(problem())


@pytest.mark.parametrize(
    "options",
    [{"scoring": "some"}, {"extract": "all"}, {"cpu_s": 0}, {"pool_size": 0}, {"wall_s": 0.1}],
)
def test_settings_that_make_no_sense_are_refused(options):
    with pytest.raises(UserError, match=r"code verifier"):
        CodeVerifier(**options)
