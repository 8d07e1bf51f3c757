"""The verifier made of others: their scores added up, gated, multiplied, or the first that fits."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

from verifiers.composite_parts import Part, build_part, check_parts
from verifiers.errors import BadReference, UserError
from verifiers.example import Example
from verifiers.problem import Problem, Submission
from verifiers.protocol import Verifier
from verifiers.registry import find_concurrency
from verifiers.verdict import Reason, Status, Verdict

Mode = Literal["weighted_sum", "gated", "product", "first_applicable"]
WEIGHTED: frozenset[Mode] = frozenset({"weighted_sum", "gated"})


class CompositeVerifier(Verifier):
    """Judges by several verifiers, the parts.

    * `weighted_sum`: the mean of the parts' scores by their weights.
    * `gated`: the same, but when the first part does not find the completion right, the others are
      not asked and count 0.
    * `product`: the parts' scores multiplied.
    * `first_applicable`: the verdict of the first part that can read the row's reference and does
      not abstain.

    Status, reason and extracted answer are those of the main part; the other parts change only the
    score. A part that abstains is left out. A part that fails (it raised, its worker died, it
    cannot read its reference) leaves the whole completion not verified: half a verdict would be a
    wrong reward. With a part that judges whole groups, the composite does. It judges as many
    completions at the same time as its most concurrent part; the others keep to their own number.

    Args:
        parts: Mappings with `verifier` and, where wanted, its `options`, a `name`, a `weight` (1)
            and a `reference_column` that holds this part's reference.
        mode: See above.
        main: Name of the main part, by default the first.

    Raises:
        UserError: A part is not a verifier of this kind, or the options contradict each other.
    """

    name = "composite"
    version = 1

    def __init__(
        self,
        *,
        parts: Sequence[Mapping[str, Any]] = (),
        mode: Mode = "weighted_sum",
        main: str | None = None,
    ) -> None:
        _check_mode(mode, main)
        self._mode: Mode = mode
        self._parts: list[Part] = []
        try:
            for number, part in enumerate(check_parts(parts)):
                self._parts.append(build_part(part, f"parts.{number}", weighted=mode in WEIGHTED))
            self._main = self._find_main(main)
            if any(part.verifier.scope == "group" for part in self._parts):
                self.scope = "group"
            self.concurrency = max(find_concurrency(part.verifier) for part in self._parts)
        except BaseException:
            self.close()
            raise

    def prepare(self, problem: Problem) -> None:
        """Check that every part (with `first_applicable`: one) can judge the problem.

        Raises:
            BadReference: It cannot.
        """
        if self._mode != "first_applicable":
            for part in self._parts:
                part.prepare(problem)
        elif not any(part.applies(problem) for part in self._parts):
            names = ", ".join(part.name for part in self._parts)
            raise BadReference(
                f"{problem.source}: no part of `composite` ({names}) can read the reference "
                f"{problem.reference!r}"
            )

    def verify(self, submission: Submission) -> Verdict:
        """Ask the parts about one completion."""
        return self._judge([submission])[0]

    def verify_batch(self, submissions: Sequence[Submission]) -> list[Verdict]:
        """Judge completions one by one, or as a group where a part wants it."""
        if self.scope == "group":
            return self._judge(submissions)
        return super().verify_batch(submissions)

    def close(self) -> None:
        """Close every part."""
        for part in self._parts:
            part.verifier.close()

    def examples(self) -> Sequence[Example]:
        """The main part's, where it decides the status and all other parts can judge them too."""
        routed = self._mode == "first_applicable"
        closed = self._mode == "gated" and self._main is not self._parts[0]
        silent = not all(part.verifier.examples() for part in self._parts)
        if routed or closed or silent:
            return []
        examples = [self._adopt(example) for example in self._main.verifier.examples()]
        return [
            example
            for example in examples
            if all(part.applies(example.submission.problem) for part in self._parts)
        ]

    def _adopt(self, example: Example) -> Example:
        problem = example.submission.problem
        columns = dict(problem.columns)
        if self._main.reference_column is not None:
            columns[self._main.reference_column] = problem.reference
        problem = replace(problem, verifier=self.name, columns=columns)
        return replace(example, submission=replace(example.submission, problem=problem))

    def _find_main(self, main: str | None) -> Part:
        by_name = {part.name: part for part in self._parts}
        if len(by_name) < len(self._parts):
            raise UserError(
                "two parts of the verifier `composite` have one name; give each its own 'name'"
            )
        if main is not None and main not in by_name:
            raise UserError(
                f"option 'main' of the verifier `composite` is {main!r}; its parts are "
                f"{', '.join(by_name)}"
            )
        return self._parts[0] if main is None else by_name[main]

    def _judge(self, submissions: Sequence[Submission]) -> list[Verdict]:
        """Verdicts on one submission, or on all submissions of a group."""
        started = time.perf_counter()
        asked = self._ask(submissions)
        seconds = (time.perf_counter() - started) / len(submissions)
        return [
            replace(
                self._combine(verdicts),
                verifier=self.label,
                seconds=seconds,
                components=_gather_components(verdicts),
                report={
                    name: {"status": each.status.value, "reason": each.reason.value}
                    for name, each in verdicts.items()
                },
            )
            for verdicts in asked
        ]

    def _ask(self, submissions: Sequence[Submission]) -> list[dict[str, Verdict]]:
        """For each submission the parts' verdicts, in their order, as far as they were asked."""
        problem = submissions[0].problem
        asked: list[dict[str, Verdict]] = [{} for _ in submissions]
        undecided = list(range(len(submissions)))
        for part in self._parts:
            if self._mode == "first_applicable" and not part.applies(problem):
                continue
            address = part.address(problem)
            # A part that judges groups is shown all of the group, the decided members too.
            places = range(len(submissions)) if part.verifier.scope == "group" else undecided
            shown = [replace(submissions[place], problem=address) for place in places]
            found = dict(zip(places, part.ask(shown), strict=True))
            for place in undecided:
                asked[place][part.name] = found[place]
            undecided = [place for place in undecided if not self._decides(part, found[place])]
            if not undecided:
                break
        return asked

    def _decides(self, part: Part, verdict: Verdict) -> bool:
        """Whether no further part needs to be asked."""
        if _abstained(verdict):
            return False
        shut = self._mode == "gated" and verdict.status is not Status.CORRECT
        first_shuts = shut and part is self._parts[0]
        return first_shuts or self._mode == "first_applicable" or not verdict.verified

    def _combine(self, verdicts: Mapping[str, Verdict]) -> Verdict:
        """The verdict of the part that decides, with the score of all."""
        if not verdicts:
            return _unverified(Status.BAD_GOLD, "no part can read the reference")
        *_, last = verdicts.values()
        if self._mode == "first_applicable" or not (last.verified or _abstained(last)):
            return last
        main = verdicts.get(self._main.name)
        if main is None:  # the gate is shut
            main = last
        if not main.verified:
            return main
        score = self._multiply(verdicts) if self._mode == "product" else self._average(verdicts)
        return replace(main, score=score)

    def _average(self, verdicts: Mapping[str, Verdict]) -> float:
        """A part that was not asked counts 0; one that abstained does not count."""
        total = weights = 0.0
        for part in self._parts:
            verdict = verdicts.get(part.name)
            if verdict is not None and verdict.score is None:
                continue
            weights += part.weight
            total += part.weight * ((verdict.score or 0.0) if verdict else 0.0)
        return total / weights

    def _multiply(self, verdicts: Mapping[str, Verdict]) -> float:
        return math.prod(each.score for each in verdicts.values() if each.score is not None)


def _gather_components(verdicts: Mapping[str, Verdict]) -> dict[str, float]:
    """Each part's score by its name, and its own components as `part.component`."""
    components: dict[str, float] = {}
    for name, verdict in verdicts.items():
        if verdict.score is not None:
            components[name] = verdict.score
        components |= {f"{name}.{key}": value for key, value in verdict.components.items()}
    return components


def _abstained(verdict: Verdict) -> bool:
    return verdict.reason is Reason.ABSTAINED


def _unverified(status: Status, detail: str) -> Verdict:
    return Verdict(
        status=status,
        score=None,
        reason=Reason.UNREADABLE_REFERENCE,
        verifier="composite",
        detail=detail,
    )


def _check_mode(mode: str, main: str | None) -> None:
    if mode not in get_args(Mode):
        raise UserError(
            f"option 'mode' of the verifier `composite` is {mode!r}; choose from "
            f"{', '.join(get_args(Mode))}"
        )
    if main is not None and mode == "first_applicable":
        raise UserError("with mode 'first_applicable' every part decides, so there is no 'main'")
