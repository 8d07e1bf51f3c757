"""A step's timeline as a Chrome trace, which Perfetto (https://ui.perfetto.dev) opens."""

from __future__ import annotations

from typing import Any

from grpo.timing import LOOP, Sample, Span, StepTimes

_PID = 1


def make_chrome_trace(times: StepTimes, *, step: int) -> dict[str, Any]:
    """Write a step in the Trace Event Format.

    The loop's phases are slices of one thread. What workers do overlaps, so it is asynchronous
    slices; queues are counters. Times are microseconds since the step's begin.

    Args:
        times: Of the step.
        step: Its number.
    """
    tracks = [LOOP, *sorted({span.track for span in times.spans} - {LOOP})]
    events: list[dict[str, Any]] = [_name("process_name", 0, f"step {step}")]
    events += [_name("thread_name", place, track) for place, track in enumerate(tracks)]
    for number, span in enumerate(times.spans):
        thread = tracks.index(span.track)
        if span.track == LOOP:
            events.append(_slice(span, times, thread))
        else:
            events += _asynchronous(span, times, thread, number)
    events += [_counter(sample, times) for sample in times.samples]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"step": step}}


def _name(kind: str, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": _PID, "tid": thread, "args": {"name": name}}


def _slice(span: Span, times: StepTimes, thread: int) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": span.name,
        "cat": span.track,
        "pid": _PID,
        "tid": thread,
        "ts": _microseconds(span.begin, times),
        "dur": (span.end - span.begin) * 1e6,
        "args": dict(span.facts),
    }


def _asynchronous(span: Span, times: StepTimes, thread: int, number: int) -> list[dict[str, Any]]:
    common = {"name": span.name, "cat": span.track, "id": number, "pid": _PID, "tid": thread}
    return [
        {
            "ph": "b",
            **common,
            "ts": _microseconds(span.begin, times),
            "args": dict(span.facts),
        },
        {"ph": "e", **common, "ts": _microseconds(span.end, times)},
    ]


def _counter(sample: Sample, times: StepTimes) -> dict[str, Any]:
    return {
        "ph": "C",
        "name": sample.track,
        "pid": _PID,
        "ts": _microseconds(sample.at, times),
        "args": {"value": sample.value},
    }


def _microseconds(moment: float, times: StepTimes) -> float:
    # What began in the step before is cut off there.
    return max(0.0, moment - times.begin) * 1e6
