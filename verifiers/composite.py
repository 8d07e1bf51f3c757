"""The verifier made of others: their scores added up, gated, multiplied, or the first that fits."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

from verifiers.composite_parts import Part, build_part, check_parts
from verifiers.errors import BadReference, UserError
from verifiers.judge import Example, HasExamples
from verifiers.problem import Problem, Submission
from verifiers.protocol import Placement
from verifiers.verdict import Reason, Status, Verdict

Mode = Literal["weighted_sum", "gated", "product", "first_applicable"]
WEIGHTED: frozenset[Mode] = frozenset({"weighted_sum", "gated"})


class CompositeVerifier:
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
    wrong reward.

    Args:
        parts: Mappings with `verifier` and, where wanted, its `options`, a `name`, a `weight` (1)
            and a `reference_column` that holds this part's reference.
        mode: See above.
        main: Name of the main part, by default the first.

    Raises:
        UserError: A part is not a verifier of this kind, or the options contradict each other.
    """

    name: str = "composite"
    version: int = 1
    placement: Placement = "worker"

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
        started = time.perf_counter()
        verdicts = self._ask(submission)
        verdict = self._combine(verdicts)
        return replace(
            verdict,
            verifier=f"{self.name}@{self.version}",
            seconds=time.perf_counter() - started,
            components=_gather_components(verdicts),
            report={
                name: {"status": each.status.value, "reason": each.reason.value}
                for name, each in verdicts.items()
            },
        )

    def close(self) -> None:
        """Close every part."""
        for part in self._parts:
            part.verifier.close()

    def examples(self) -> Sequence[Example]:
        """The main part's, where it decides the status and all other parts can judge them too."""
        routed = self._mode == "first_applicable"
        closed = self._mode == "gated" and self._main is not self._parts[0]
        bring = [part.verifier for part in self._parts if isinstance(part.verifier, HasExamples)]
        if routed or closed or len(bring) < len(self._parts):
            return []
        main = self._main.verifier
        assert isinstance(main, HasExamples)
        examples = [self._adopt(example) for example in main.examples()]
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

    def _ask(self, submission: Submission) -> dict[str, Verdict]:
        """Verdicts of the parts, in their order, as far as they were asked."""
        verdicts: dict[str, Verdict] = {}
        for part in self._parts:
            if self._mode == "first_applicable" and not part.applies(submission.problem):
                continue
            addressed = replace(submission, problem=part.address(submission.problem))
            verdict = verdicts[part.name] = part.verifier.verify(addressed)
            if _abstained(verdict):
                continue
            shut = self._mode == "gated" and verdict.status is not Status.CORRECT
            if (shut and part is self._parts[0]) or self._mode == "first_applicable":
                break
            if not verdict.verified:
                break
        return verdicts

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
