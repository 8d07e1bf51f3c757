import base64
import json

import pytest

from sandbox.classify import classify_calls, classify_inputs
from sandbox.container.candidate import NEVER_STARTED
from sandbox.container.watch import Facts
from sandbox.limits import Limits
from sandbox.result import ExecStatus, Flag, InfraCause

LIMITS = Limits(cpu_s=1.0, wall_s=5.0)


def facts(**changes):
    plain = dict(vars(Facts()))
    plain |= {"started": True, "stdout": b"", "stderr": b"", "first": 0} | changes
    for name in ("stdout", "stderr"):
        plain[name] = base64.b64encode(plain[name]).decode()
    return plain


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, "OK"),
        ({"code": 1}, "RE"),
        ({"code": -11}, "RE"),
        ({"code": -9}, "RE"),
        ({"code": NEVER_STARTED}, "RE"),
        ({"code": NEVER_STARTED, "started": False}, "IE"),
        ({"started": False, "not_compiled": "SyntaxError", "code": 1}, "CE"),
        ({"started": False, "code": -11}, "CE"),
        ({"started": False, "ended": "cpu", "code": -9}, "TLE"),
        ({"ended": "cpu", "code": -9}, "TLE"),
        ({"ended": "wall", "code": -9}, "TLE"),
        ({"code": -24}, "TLE"),
        ({"cpu_s": 1.2}, "TLE"),
        ({"ended": "output", "code": -9}, "OLE"),
        ({"ended": "report", "code": -9}, "OLE"),
        ({"oom_kills": 1, "code": -9}, "MLE"),
        ({"no_memory": True, "code": 1}, "MLE"),
        ({"no_memory": True, "code": 0}, "OK"),
        ({"ended": "cpu", "oom_kills": 1, "code": -9}, "MLE"),
        ({"ended": "wall", "code": -9, "waiting_s": 6.0, "stalled_cpu_s": 0.1}, "IE"),
        ({"ended": "wall", "code": -9, "late_s": 6.0, "stalled_cpu_s": 0.1}, "IE"),
        ({"ended": "wall", "code": -9, "waiting_s": 6.0, "stalled_cpu_s": 0.7}, "TLE"),
        ({"ended": "wall", "code": -9, "waiting_s": 1.0, "stalled_cpu_s": 0.1}, "TLE"),
    ],
)
def test_first_rule_that_applies_decides(changes, status):
    (result,) = classify_inputs([facts(**changes)], LIMITS)
    assert result.status == status
    assert (result.infra is not None) == (status == "IE")


def test_causes_of_no_verdict():
    never = facts(code=NEVER_STARTED, started=False)
    stalled = facts(ended="wall", late_s=9.0)
    causes = [one.infra for one in classify_inputs([never, stalled], LIMITS)]
    assert causes == [InfraCause.HARNESS, InfraCause.STALLED]


def test_leftover_processes_are_flagged():
    (result,) = classify_inputs([facts(leftover=2)], LIMITS)
    assert result.flags == {Flag.SV}
    assert result.status is ExecStatus.OK


def test_each_call_has_its_result():
    answers = [
        ["V", json.dumps(3)],
        ["E", "ValueError: no"],
        ["M", "MemoryError"],
        ["V", "nonsense"],
    ]
    results = classify_calls([facts(ready=True, answers=answers, cpu_s=0.4)], 4, LIMITS)
    assert [one.status for one in results] == ["OK", "RE", "MLE", "RE"]
    assert results[0].value == 3
    assert results[1].detail == "ValueError: no"
    assert results[0].cpu_s == pytest.approx(0.1)


def test_a_call_that_ends_the_process_costs_only_itself():
    runs = [
        facts(ready=True, answers=[["V", "1"]], code=-11),
        facts(ready=True, answers=[["V", "3"]], first=2),
    ]
    results = classify_calls(runs, 3, LIMITS)
    assert [one.status for one in results] == ["OK", "RE", "OK"]


def test_a_clean_exit_inside_a_call_is_no_answer():
    results = classify_calls([facts(ready=True, code=0)], 1, LIMITS)
    assert [one.status for one in results] == ["RE"]


def test_a_program_that_does_not_load_fails_every_call():
    results = classify_calls([facts(code=1, stderr=b"boom")], 3, LIMITS)
    assert [one.status for one in results] == ["RE"] * 3
    assert "boom" in results[0].detail


@pytest.mark.parametrize("payload", ["[" * 100_000, '["int","' + "f" * 10**6 + '"]', "9" * 10**5])
def test_hostile_values_are_the_programs_error(payload):
    (result,) = classify_calls([facts(ready=True, answers=[["V", payload]])], 1, LIMITS)
    assert result.status is ExecStatus.RE
