"""The timeline of a step: as a Chrome trace, and summed into who waited for whom."""

from __future__ import annotations

import json
from dataclasses import replace

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo.algorithms.advantages import Scaling
from grpo.assemble import BatchPolicy
from grpo.metrics import compute_timing_metrics, compute_waste
from grpo.run_directory import KEPT_TRACES, RunDirectory
from grpo.timing import LOOP, Sample, Span, StepTimes, Timeline
from grpo.trace import make_chrome_trace
from grpo.values import FinishReason, Rollout, ScoredGroup, ScoredRollout
from grpo.waits import CAUSES, OWNERS, VERIFIER_TRACK, WORKED, WORKERS, advise, compute_waits
from tests.trace_schema import SCHEMA
from verifiers.problem import Problem
from verifiers.verdict import Reason, Status, Verdict


def span(track, name, begin, end):
    return Span(track=track, name=name, begin=begin, end=end)


# Ten seconds: two engines of which one ends early, one verification after the last completion.
TIMES = StepTimes(
    begin=100.0,
    end=110.0,
    spans=(
        span("engine 0", "p0", 100.0, 102.0),
        span("engine 0", "p1", 101.0, 104.0),
        span("engine 1", "p2", 100.0, 102.0),
        span(LOOP, "generation", 100.0, 104.0),
        span(VERIFIER_TRACK, "math@1", 103.5, 105.0),
        span(LOOP, "verification_tail", 104.0, 105.0),
        span(LOOP, "update", 105.0, 108.0),
        span(LOOP, "weight_push", 108.0, 109.0),
    ),
    samples=(Sample(track="queue", at=101.0, value=3.0),),
)


def test_each_second_of_a_worker_goes_to_what_held_it_up():
    waits = compute_waits(TIMES, num_engines=2)
    assert waits["engines"] == {
        WORKED: 3.0, "engines": 1.0, "verifiers": 1.0, "learner": 3.0, "weights": 1.0, "loop": 1.0
    }  # fmt: skip
    assert waits["learner"] == {
        WORKED: 3.0, "engines": 4.0, "verifiers": 1.0, "learner": 0.0, "weights": 1.0, "loop": 1.0
    }  # fmt: skip
    assert waits["verifiers"][WORKED] == 1.5
    assert advise(waits).startswith("Generation holds the step up")


_PHASES = st.lists(
    st.tuples(st.sampled_from(sorted(OWNERS)), st.floats(0, 5), st.floats(0, 2)), max_size=8
)
_WORK = st.lists(
    st.tuples(st.sampled_from(["engine 0", VERIFIER_TRACK]), st.floats(-5, 40), st.floats(0, 9)),
    max_size=12,
)


@given(phases=_PHASES, work=_WORK)
def test_each_row_adds_up_to_the_step_whatever_overlaps(phases, work):
    at, spans = 0.0, []
    for name, length, gap in phases:
        spans.append(span(LOOP, name, at + gap, at + gap + length))
        at += gap + length
    spans += [span(track, "w", begin, begin + length) for track, begin, length in work]
    times = StepTimes(begin=0.0, end=at + 1.0, spans=tuple(spans), samples=())
    waits = compute_waits(times, num_engines=1)
    assert set(waits) == set(WORKERS)
    for row in waits.values():
        assert set(row) == {WORKED, *CAUSES}
        assert sum(row.values()) == pytest.approx(times.end)
        assert all(value >= -1e-9 for value in row.values())


def test_a_trace_has_the_events_that_perfetto_reads():
    trace = json.loads(json.dumps(make_chrome_trace(TIMES, step=7)))
    jsonschema.validate(trace, SCHEMA)
    events = trace["traceEvents"]
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    phases = {e["name"]: e for e in events if e["ph"] == "X"}
    assert phases["update"]["ts"] == 5e6
    assert phases["update"]["dur"] == 3e6
    assert tracks[phases["update"]["tid"]] == LOOP
    begun = {(e["cat"], e["id"]) for e in events if e["ph"] == "b"}
    ended = {(e["cat"], e["id"]) for e in events if e["ph"] == "e"}
    assert begun == ended
    assert len(begun) == 4
    (counter,) = (e for e in events if e["ph"] == "C")
    assert (counter["ts"], counter["args"]) == (1e6, {"value": 3.0})


def test_the_metrics_of_a_step_say_how_well_the_engines_were_used():
    metrics = compute_timing_metrics(TIMES, num_tokens=800, num_engines=2)
    assert metrics["tokens_per_second"] == 200.0
    assert metrics["engines/utilisation"] == pytest.approx(0.3)
    assert metrics["verification/hidden_fraction"] == pytest.approx(1 - 1.0 / 1.5)
    assert metrics["time/loop_overhead"] == pytest.approx(1.0)


def test_a_timeline_starts_anew_after_each_step():
    timeline = Timeline()
    with timeline.phase("update"):
        pass
    timeline.sample("queue", 4)
    first, second = timeline.take(), timeline.take()
    assert [s.name for s in first.spans] == ["update"]
    assert first.largest("queue") == 4
    assert second.spans == second.samples == ()
    assert second.begin == first.end


def test_what_goes_on_over_a_steps_end_counts_for_both():
    timeline = Timeline()
    opened = timeline.begin("engine 0", "p0")
    first = timeline.take()
    timeline.end(opened)
    second = timeline.take()
    for times in (first, second):
        (span,) = times.spans
        assert times.begin <= span.begin <= span.end <= times.end
    assert first.spans[0].end <= second.spans[0].begin


def test_only_the_newest_traces_are_kept(tmp_path):
    directory = RunDirectory(tmp_path)
    for step in range(1, KEPT_TRACES + 4):
        directory.write_trace(step, {"traceEvents": []})
    names = sorted(path.name for path in (tmp_path / "traces").iterdir())
    assert len(names) == KEPT_TRACES
    assert names[0] == "step-000004.json"


def make_member(member, length, reward, finish_reason: FinishReason = "stop"):
    status = {1.0: Status.CORRECT, 0.0: Status.INCORRECT, None: Status.ERROR}[reward]
    rollout = Rollout(
        problem_id="p",
        member=member,
        prompt_ids=(1,),
        completion_ids=(5,) * length,
        logprobs=(-1.0,) * length,
        text="",
        finish_reason=finish_reason,
        policy_versions=(0,) * length,
        seed=member,
    )
    verdict = Verdict(status=status, score=reward, reason=Reason.DIFFERENT, verifier="t@1")
    return ScoredRollout(rollout=rollout, verdict=verdict, reward=reward)


def test_tokens_that_teach_nothing_are_counted_once_by_their_reason():
    problem = Problem(id="p", prompt="?", verifier="math", reference="1", source="f:1")
    mixed = (
        make_member(0, 10, 1.0),
        make_member(1, 20, 0.0, "length"),
        make_member(2, 30, None, "length"),
    )
    silent = (make_member(0, 20, 0.0, "length"), make_member(1, 20, 0.0))
    groups = [ScoredGroup(problem=problem, members=members) for members in (mixed, silent)]
    strict = BatchPolicy(
        advantage_estimator="grpo",
        scaling=Scaling(),
        drop_groups_without_signal=True,
        mask_truncated=True,
    )
    lenient = replace(strict, drop_groups_without_signal=False, mask_truncated=False)
    waste = compute_waste(groups, left_out={}, policy=strict)
    assert waste == {"waste/unverified": 0.3, "waste/no_signal": 0.4, "waste/truncated": 0.2}
    stale = compute_waste(groups[:1], left_out={"stale": groups[1:]}, policy=lenient)
    assert stale == {
        "waste/stale": 0.4, "waste/unverified": 0.3, "waste/no_signal": 0.0, "waste/truncated": 0.0
    }  # fmt: skip
    kept = compute_waste(groups, left_out={}, policy=lenient)
    assert kept == {"waste/unverified": 0.3, "waste/no_signal": 0.0, "waste/truncated": 0.0}
