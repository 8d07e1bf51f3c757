"""Several answers compared with several, item by item."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from verifiers.maths.answers import Answer
from verifiers.maths.finding import Finding, join_findings

Compare = Callable[[Answer, Answer], Finding]  # the reference first


def compare_ordered(
    gold: Sequence[Answer], prediction: Sequence[Answer], compare: Compare
) -> Finding:
    """Each item of one side is that in the same place of the other."""
    if len(gold) != len(prediction):
        return Finding.of(False)
    pairs = zip(gold, prediction, strict=True)
    return join_findings([compare(g, p) for g, p in pairs])


def compare_unordered(
    gold: Sequence[Answer], prediction: Sequence[Answer], compare: Compare
) -> Finding:
    """Each item of one side is matched with one of the other."""
    if len(gold) != len(prediction):
        return Finding.of(False)
    left = list(prediction)
    undecided = False
    for item in gold:
        findings = [compare(item, candidate) for candidate in left]
        place = next((i for i, f in enumerate(findings) if f.same), None)
        if place is None and any(f.same is None for f in findings):
            undecided = True
        elif place is None:
            return Finding.of(False)
        else:
            del left[place]
    return Finding.of(None if undecided else True)


def find_distinct(items: Iterable[Answer], compare: Compare) -> list[Answer]:
    """The items without those that are the same as an earlier one."""
    kept: list[Answer] = []
    for item in items:
        if not any(compare(other, item).same for other in kept):
            kept.append(item)
    return kept
