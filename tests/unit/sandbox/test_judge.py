from sandbox.judge import INPUTS_PER_JOB, judge
from sandbox.limits import Limits
from sandbox.result import ExecResult, ExecStatus, InfraCause, infra_result
from sandbox.suite_reader import read_suite


class FakeRuns:
    """Answers runs from a list, and remembers the jobs."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.jobs = []

    def run(self, job):
        self.jobs.append(job)
        taken, self.answers = self.answers[: job.num_runs], self.answers[job.num_runs :]
        if job.stop_early:
            bad = [i for i, one in enumerate(taken) if one.status is not ExecStatus.OK]
            taken = taken[: bad[0] + 1] if bad else taken
        return tuple(taken)


def printed(text):
    return ExecResult(status=ExecStatus.OK, stdout=text.encode())


def returned(value):
    return ExecResult(status=ExecStatus.OK, value=value)


def stdio(*outputs):
    return read_suite(
        [{"kind": "stdio", "input": "", "output": output} for output in outputs], Limits()
    )


def calls(*expected):
    tests = [{"kind": "function", "entry_point": "f", "expected": one} for one in expected]
    return read_suite(tests, Limits())


def verdicts(reports):
    return [str(one.verdict) for one in reports]


def test_outputs_are_compared_here():
    runs = FakeRuns(printed("1\n"), printed("3"))
    reports = judge(runs, "p", stdio("1", "2"), stop_early=False)
    assert verdicts(reports) == ["AC", "WA"]
    assert "3" in reports[1].detail


def test_nothing_expected_is_sent():
    runs = FakeRuns(printed("secret-1"), returned("secret-2"))
    suite = read_suite(
        [
            {"kind": "stdio", "input": "in", "output": "secret-1"},
            {"kind": "function", "entry_point": "f", "expected": "secret-2"},
            {"kind": "assert", "code": "assert f(1) == 'secret-3'"},
        ],
        Limits(),
    )
    judge(runs, "p", suite, stop_early=False)
    assert runs.jobs
    assert "secret" not in repr(runs.jobs)


def test_judging_stops_at_the_first_failure():
    runs = FakeRuns(*[printed("no")] * 40)
    reports = judge(runs, "p", stdio(*["yes"] * 40), stop_early=True)
    assert verdicts(reports) == ["WA"]
    assert [job.num_runs for job in runs.jobs] == [INPUTS_PER_JOB]


def test_all_calls_of_a_suite_are_one_job():
    runs = FakeRuns(returned(1), returned(2), returned(9))
    reports = judge(runs, "p", calls(1, 2, 3), stop_early=False)
    assert verdicts(reports) == ["AC", "AC", "WA"]
    assert len(runs.jobs) == 1


def test_a_run_without_a_verdict_is_not_a_wrong_answer():
    runs = FakeRuns(infra_result(InfraCause.LOST, "gone"))
    (report,) = judge(runs, "p", stdio("1"), stop_early=True)
    assert report.verdict == "IE"
    assert report.infra is InfraCause.LOST


def test_a_condition_that_raises_is_a_wrong_answer():
    suite = read_suite([{"kind": "assert", "code": "assert abs(f(1) - 2) < 1"}], Limits())
    (report,) = judge(FakeRuns(returned("text")), "p", suite, stop_early=True)
    assert report.verdict == "WA"
    assert "TypeError" in report.detail


def test_huge_numbers_can_be_reported():
    (report,) = judge(FakeRuns(returned(10**10_000)), "p", calls(1), stop_early=True)
    assert report.verdict == "WA"
    assert "large int" in report.detail


def test_the_preamble_goes_first():
    runs = FakeRuns(printed("1"))
    suite = read_suite(
        {"preamble": "import math", "tests": [{"kind": "stdio", "input": "", "output": "1"}]},
        Limits(),
    )
    judge(runs, "print(1)", suite, stop_early=True)
    assert runs.jobs[0].program == "import math\nprint(1)"
