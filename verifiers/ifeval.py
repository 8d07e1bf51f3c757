"""The verifier of instruction following: every instruction of a row, checked strictly."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from verifiers.errors import BadReference
from verifiers.example import Example
from verifiers.extraction import find_final_reply
from verifiers.instructions import INSTRUCTIONS
from verifiers.json_text import NotJson, read_json
from verifiers.problem import Problem, Submission
from verifiers.protocol import Verifier
from verifiers.replies import Ruling
from verifiers.verdict import Reason, Status, Verdict


class IfevalVerifier(Verifier):
    """Judges whether a reply follows instructions, named as in the IFEval data set.

    The reply is what follows the last reasoning block, as it stands. It is right when it follows
    all instructions; the components say which.

    Args:
        partial: The score of a wrong reply is the share of instructions that it follows.
        kwargs_column: Column with the arguments, for rows whose reference is the list of ids.
        allow_truncated: Judge a completion that was cut off at the length limit.
    """

    name = "ifeval"
    version = 1

    def __init__(
        self,
        *,
        partial: bool = False,
        kwargs_column: str = "kwargs",
        allow_truncated: bool = False,
    ) -> None:
        self._partial = partial
        self._kwargs_column = kwargs_column
        self._allow_truncated = allow_truncated

    def prepare(self, problem: Problem) -> None:
        """Check that every instruction is known and has its arguments.

        Raises:
            BadReference: One is not, or has not.
        """
        try:
            self._read_instructions(problem)
        except ValueError as error:
            raise BadReference(
                f"{problem.source}: the verifier `ifeval` cannot judge the row: {error}"
            ) from error

    def verify(self, submission: Submission) -> Verdict:
        """Judge one completion."""
        started = time.perf_counter()
        if submission.truncated and not self._allow_truncated:
            return Ruling.no_answer(Reason.TRUNCATED).sign(self.label, started)
        reply = find_final_reply(submission.completion)
        if isinstance(reply, Reason):
            return Ruling.no_answer(reply).sign(self.label, started)
        if not reply.strip():
            return Ruling.no_answer(Reason.EMPTY_ANSWER).sign(self.label, started)
        try:
            instructions = self._read_instructions(submission.problem)
        except ValueError as error:
            return Ruling.bad_gold(str(error)).sign(self.label, started)
        return self._judge(instructions, reply).sign(self.label, started)

    def examples(self) -> Sequence[Example]:
        """A reply that follows its instruction, and one that does not."""
        reference = {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
        return [
            Example.of(self.name, reference, "No more.", Status.CORRECT),
            Example.of(self.name, reference, "No, more.", Status.INCORRECT),
        ]

    def _judge(self, instructions: Sequence[tuple[str, Mapping[str, Any]]], reply: str) -> Ruling:
        followed = [INSTRUCTIONS[id_].check(reply, **given) for id_, given in instructions]
        components = {
            f"{number}.{id_}": float(ok)
            for number, ((id_, _), ok) in enumerate(zip(instructions, followed, strict=True), 1)
        }
        if all(followed):
            return Ruling(status=Status.CORRECT, reason=Reason.ACCEPTED, components=components)
        missed = [name for name, ok in components.items() if not ok]
        return Ruling(
            status=Status.INCORRECT,
            reason=Reason.REJECTED,
            score=sum(followed) / len(followed) if self._partial else 0.0,
            components=components,
            detail=f"not followed: {', '.join(missed)}",
        )

    def _read_instructions(self, problem: Problem) -> list[tuple[str, Mapping[str, Any]]]:
        """Ids and arguments.

        Raises:
            ValueError: They cannot be read.
        """
        reference = problem.reference
        if isinstance(reference, str):
            try:
                reference = read_json(reference)
            except NotJson as error:
                raise ValueError(f"the reference is no JSON: {error}") from error
        if isinstance(reference, Mapping):
            ids, arguments = reference.get("instruction_id_list"), reference.get("kwargs")
        else:
            ids, arguments = reference, problem.columns.get(self._kwargs_column)
        if not isinstance(ids, list | tuple) or not ids:
            raise ValueError("there is no instruction_id_list with at least one instruction")
        if not isinstance(arguments, list | tuple) or len(arguments) != len(ids):
            raise ValueError(f"kwargs is no list of {len(ids)} mappings, one for each instruction")
        return [_read_instruction(*pair) for pair in zip(ids, arguments, strict=True)]


def _read_instruction(id_: object, arguments: object) -> tuple[str, Mapping[str, Any]]:
    if not isinstance(id_, str) or id_ not in INSTRUCTIONS:
        raise ValueError(
            f"there is no instruction {id_!r} here; known are {', '.join(INSTRUCTIONS)}"
        )
    if arguments is not None and not isinstance(arguments, Mapping):
        raise ValueError(f"the arguments of {id_} are no mapping: {arguments!r}")
    # Tables give every row every column: an argument that is None is not there.
    given = {name: value for name, value in (arguments or {}).items() if value is not None}
    if fault := INSTRUCTIONS[id_].find_fault(given):
        raise ValueError(f"{id_}: {fault}")
    return id_, given
