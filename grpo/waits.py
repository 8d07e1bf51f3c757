"""Who waited for whom: a step's wall time of each worker, split by what held it up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grpo.timing import LOOP, Span, StepTimes

ENGINE_TRACK = "engine "
VERIFIER_TRACK = "verifiers"
# What the learner does while the loop is in a phase that is not its own.
LEARNER_TRACK = "learner"
# Counters of the timeline.
ROLLOUT_QUEUE = "completions that wait for an engine"
VERIFICATION_QUEUE = "completions that wait for a verdict"
WORKED = "worked"
# Whose work each of the loop's phases is; time in no phase is the loop's own.
OWNERS = {
    "generation": "engines",
    "verification_tail": "verifiers",
    "wait_for_rollouts": "engines",
    "update": "learner",
    "weight_push": "weights",
    "record": "loop",
}
WORKERS = ("engines", "verifiers", "learner")
CAUSES = ("engines", "verifiers", "learner", "weights", "loop")
_ADVICE = {
    "engines": "Generation holds the step up: more engines (rollout.num_engines), max_staleness=1, "
    "where it is 0, to generate while the learner works, or a shorter max_completion_length.",
    "verifiers": "Verification holds the step up: raise verification.num_workers or "
    "sandbox.pool_size, or give slow problems a shorter time limit.",
    "learner": "The update holds the step up: more learner ranks (learner.world_size), a larger "
    "max_tokens_per_microbatch, or max_staleness=1, where it is 0, to generate meanwhile.",
    "weights": "Pushing weights holds the step up: fewer, larger steps, or engines on the "
    "learner's node.",
    "loop": "The loop itself holds the step up: a slow disk under output_dir, or a driver that "
    "shares its cores.",
}


def compute_waits(times: StepTimes, num_engines: int) -> dict[str, dict[str, float]]:
    """Split the step's wall time for engines, verifiers and learner.

    A worker's time is `worked`, or it goes to the owner of the phase that the loop was in: engines
    that stand still while others finish have waited for engines. Each worker's parts add up to the
    step.

    Args:
        times: Of one step.
        num_engines: The engines' row is their mean.

    Returns:
        Seconds by worker, and then by `worked` or what was waited for.
    """
    phases = _cover([span for span in times.spans if span.track == LOOP], times)
    busy = {
        f"engines {place}": _merge(times, _on(times, f"{ENGINE_TRACK}{place}"))
        for place in range(num_engines)
    }
    engines = [_split(phases, spans) for spans in busy.values()]
    updates = [
        Span(track=LEARNER_TRACK, name="update", begin=begin, end=end)
        for begin, end, owner in phases
        if owner == "learner"
    ]
    return {
        "engines": {
            key: sum(row[key] for row in engines) / max(len(engines), 1)
            for key in (WORKED, *CAUSES)
        },
        "verifiers": _split(phases, _merge(times, _on(times, VERIFIER_TRACK))),
        "learner": _split(phases, _merge(times, [*updates, *_on(times, LEARNER_TRACK)])),
    }


def advise(waits: Mapping[str, Mapping[str, float]]) -> str:
    """One line on what to change, from the largest wait of engines or learner."""
    cause = max(CAUSES, key=lambda c: max(waits[worker][c] for worker in ("engines", "learner")))
    return _ADVICE[cause]


def _cover(phases: Sequence[Span], times: StepTimes) -> list[tuple[float, float, str]]:
    """The whole step as intervals with their owners, the loop's own between the phases."""
    covered: list[tuple[float, float, str]] = []
    at = times.begin
    for span in sorted(phases, key=lambda span: span.begin):
        covered.append((at, max(at, span.begin), "loop"))
        at = max(at, span.begin)
        end = min(max(at, span.end), times.end)
        covered.append((at, end, OWNERS.get(span.name, "loop")))
        at = end
    covered.append((at, max(at, times.end), "loop"))
    return covered


def _on(times: StepTimes, track: str) -> list[Span]:
    return [span for span in times.spans if span.track == track]


def _merge(times: StepTimes, spans: Sequence[Span]) -> list[tuple[float, float]]:
    """When any of them was going on within the step, without overlaps."""
    merged: list[tuple[float, float]] = []
    for span in sorted(spans, key=lambda span: span.begin):
        begin, end = max(span.begin, times.begin), min(span.end, times.end)
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        elif begin < end:
            merged.append((begin, end))
    return merged


def _split(
    phases: Sequence[tuple[float, float, str]], busy: Sequence[tuple[float, float]]
) -> dict[str, float]:
    row: dict[str, float] = dict.fromkeys((WORKED, *CAUSES), 0.0)
    for begin, end, owner in phases:
        worked = sum(max(0.0, min(end, b_end) - max(begin, b_begin)) for b_begin, b_end in busy)
        row[WORKED] += worked
        row[owner] += end - begin - worked
    return row
