"""The parts of `composite`, from its options."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from verifiers.errors import BadReference, UserError
from verifiers.problem import Problem, Submission
from verifiers.protocol import Verifier
from verifiers.registry import build_verifier, find_concurrency, find_placement
from verifiers.verdict import Verdict

PART_KEYS = ("verifier", "options", "name", "weight", "reference_column")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A verifier among others.

    Attributes:
        name: Unique within its composite.
        weight: Above 0.
        reference_column: Column that holds its reference; None for the row's own reference.
        turns: As many as may call the verifier at the same time.
    """

    name: str
    verifier: Verifier
    weight: float
    reference_column: str | None
    turns: threading.BoundedSemaphore

    def address(self, problem: Problem) -> Problem:
        """The problem as this part sees it."""
        reference = problem.reference
        if self.reference_column is not None:
            reference = problem.columns.get(self.reference_column)
        return replace(problem, verifier=self.verifier.name, reference=reference)

    def prepare(self, problem: Problem) -> None:
        """Check that the part can judge the problem.

        Raises:
            BadReference: It cannot.
        """
        if self.reference_column is not None and self.reference_column not in problem.columns:
            raise BadReference(
                f"{problem.source}: the part {self.name!r} of `composite` reads its reference "
                f"from the column {self.reference_column!r}, which this row does not have"
            )
        with self.turns:
            self.verifier.prepare(self.address(problem))

    def ask(self, submissions: Sequence[Submission]) -> list[Verdict]:
        """Verdicts on submissions, which are addressed to this part, in their order."""
        with self.turns:
            return self.verifier.verify_batch(submissions)

    def applies(self, problem: Problem) -> bool:
        """Whether the part can judge the problem."""
        try:
            self.prepare(problem)
        except BadReference:
            return False
        return True


def check_parts(parts: Any) -> Sequence[Mapping[str, Any]]:
    """The same list, when it is one of mappings that name a verifier.

    Raises:
        UserError: It is not.
    """
    is_list = isinstance(parts, list | tuple) and len(parts) > 0
    if not is_list or not all(isinstance(part, Mapping) and "verifier" in part for part in parts):
        raise UserError(
            "the verifier `composite` needs 'parts', a list of mappings with the key 'verifier' "
            f"and, where wanted, {', '.join(PART_KEYS[1:])}"
        )
    return parts


def build_part(part: Mapping[str, Any], where: str, *, weighted: bool) -> Part:
    """Build one part.

    Args:
        part: Its keys are `PART_KEYS`.
        where: Its place in the options, for messages.
        weighted: Whether weights have an effect.

    Raises:
        UserError: It is not the description of a part.
    """
    for key in part:
        if key not in PART_KEYS:
            raise UserError(
                f"{where} of the verifier `composite` has the key {key!r}; its keys can be "
                f"{', '.join(PART_KEYS)}"
            )
    spec = part["verifier"]
    if find_placement(spec) == "node":
        raise UserError(
            f"{where} of the verifier `composite` is {spec!r}, which owns containers and runs "
            "once on a machine, not as a part; let the rows name it as their verifier"
        )
    weight = part.get("weight", 1.0)
    if "weight" in part and not weighted:
        raise UserError(f"{where}.weight of the verifier `composite` has no effect in this mode")
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not weight > 0:
        raise UserError(f"{where}.weight of the verifier `composite` is {weight!r}, not above 0")
    verifier = build_verifier(spec, part.get("options", {}))
    return Part(
        name=part.get("name", spec),
        verifier=verifier,
        weight=float(weight),
        reference_column=part.get("reference_column"),
        turns=threading.BoundedSemaphore(find_concurrency(verifier)),
    )
