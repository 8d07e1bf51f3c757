"""From what the supervisor saw of a run to how it ended: pure rules, in a fixed order."""

from __future__ import annotations

import base64
import json
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from sandbox.container.candidate import NEVER_STARTED, NO_MEMORY, VALUE
from sandbox.container.values import decode
from sandbox.limits import Limits
from sandbox.result import ExecResult, ExecStatus, Flag, InfraCause

# A program that waited for so many times its wall limit, and got no more than this share of its CPU
# limit meanwhile, was on a machine too busy to time anything.
STALL_WAITING_SHARE = 1.0
STALL_CPU_SHARE = 0.5

Facts = Mapping[str, Any]
Found = tuple[ExecStatus, str]


def classify_inputs(runs: Sequence[Facts], limits: Limits) -> tuple[ExecResult, ...]:
    """Results of a job with inputs, one for each run that was made."""
    return tuple(_whole_run(facts, limits) for facts in runs)


def classify_calls(runs: Sequence[Facts], num_calls: int, limits: Limits) -> tuple[ExecResult, ...]:
    """Results of a job with calls, in order; fewer than `num_calls` when it was stopped early."""
    results: list[ExecResult] = []
    for facts in runs:
        answers = facts["answers"]
        share = 1 / max(1, len(answers))
        for tag, payload in answers:
            results.append(_answered(tag, payload, facts, share))
        if len(results) == num_calls:
            break
        end = _whole_run(facts, limits)
        if end.status is ExecStatus.OK:
            end = _result(facts, ExecStatus.RE, "the process ended before the call returned")
        results.append(end)
        if not facts["ready"]:
            # The program itself did not run: no call can be made.
            results.extend([end] * (num_calls - len(results)))
    return tuple(results)


def _answered(tag: str, payload: str, facts: Facts, share: float) -> ExecResult:
    cost = {"cpu_s": facts["cpu_s"] * share, "wall_s": facts["wall_s"] * share}
    if tag == NO_MEMORY.decode():
        return _result(facts, ExecStatus.MLE, payload, **cost)
    if tag != VALUE.decode():
        return _result(facts, ExecStatus.RE, payload, **cost)
    try:
        value = decode(json.loads(payload))
    except (ValueError, RecursionError) as error:
        return _result(facts, ExecStatus.RE, f"unreadable return value: {error}"[:200], **cost)
    return _result(facts, ExecStatus.OK, "", value=value, **cost)


def _whole_run(facts: Facts, limits: Limits) -> ExecResult:
    status, detail = _status(facts, limits)
    infra = None
    if status is ExecStatus.IE:
        infra = InfraCause.STALLED if facts["started"] else InfraCause.HARNESS
    return _result(facts, status, detail, infra=infra)


def _status(facts: Facts, limits: Limits) -> Found:
    """The first rule that applies."""
    rules = (_not_judged, _ended_by_judge, _over_limit, _failed)
    return next((found for rule in rules if (found := rule(facts, limits))), (ExecStatus.OK, ""))


def _not_judged(facts: Facts, limits: Limits) -> Found | None:
    if not facts["started"] and facts["code"] == NEVER_STARTED:
        why = _text(facts["stderr"])[-500:]
        return ExecStatus.IE, f"the program could not be started: {why}"
    if facts["ended"] == "wall" and _stalled(facts, limits):
        return ExecStatus.IE, (
            f"the machine stalled: late {facts['late_s']:.2f} s, kept waiting "
            f"{facts['waiting_s']:.2f} s, CPU {facts['stalled_cpu_s']:.2f} s"
        )
    return None


def _ended_by_judge(facts: Facts, limits: Limits) -> Found | None:
    match facts["ended"]:
        case "closed":
            return ExecStatus.OK, ""
        case "forged":
            return ExecStatus.RE, "spoke to the judge out of turn"
        case "output" | "report":
            return ExecStatus.OLE, f"more than {limits.stdout_kb} kB of output"
        case "processes":
            return ExecStatus.RE, f"more than {limits.processes} processes"
    return None


def _over_limit(facts: Facts, limits: Limits) -> Found | None:
    ended, code = facts["ended"], facts["code"]
    if facts["oom_kills"] or (facts["no_memory"] and code != 0):
        return ExecStatus.MLE, f"more than {limits.memory_mb} MB of memory"
    if ended == "wall":
        return ExecStatus.TLE, f"more than {limits.wall:g} s of wall time"
    if ended == "cpu" or code == -signal.SIGXCPU or facts["cpu_s"] >= limits.cpu_s:
        return ExecStatus.TLE, f"more than {limits.cpu_s:g} s of CPU time"
    return None


def _failed(facts: Facts, _limits: Limits) -> Found | None:
    code = facts["code"]
    if not facts["started"]:
        return ExecStatus.CE, facts["not_compiled"] or f"the compiler ended with {code}"
    if code < 0:
        return ExecStatus.RE, f"killed by {_signal_name(-code)}"
    if code > 0:
        last_line = _text(facts["stderr"]).strip().rpartition("\n")[2]
        return ExecStatus.RE, f"exit code {code}: {last_line[:300]}"
    return None


def _stalled(facts: Facts, limits: Limits) -> bool:
    """Whether the machine, and not the program, used up the wall time.

    A program can make itself and its supervisor wait by starting many processes; but then these
    have used CPU time, which a stalled machine does not give.
    """
    waited = facts["late_s"] + facts["waiting_s"] > STALL_WAITING_SHARE * limits.wall
    return waited and facts["stalled_cpu_s"] < STALL_CPU_SHARE * limits.cpu_s


def _result(facts: Facts, status: ExecStatus, detail: str, **changes: Any) -> ExecResult:
    values: dict[str, Any] = {
        "status": status,
        "stdout": base64.b64decode(facts["stdout"]),
        "stderr": _text(facts["stderr"]),
        "cpu_s": facts["cpu_s"],
        "wall_s": facts["wall_s"],
        "memory_mb": facts["memory_kb"] / 1024,
        "exit_code": facts["code"],
        "flags": frozenset({Flag.SV}) if facts["leftover"] or facts["dirty"] else frozenset(),
        "detail": detail,
        "killed": facts["ended"] != "closed" and (facts["ended"] != "exit" or facts["code"] < 0),
    }
    return ExecResult(**{**values, **changes})


def _text(encoded: str) -> str:
    return base64.b64decode(encoded).decode("utf-8", "replace")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
