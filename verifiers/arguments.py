"""What a user's function asks for by the names of its parameters, and the values for them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verifiers.errors import UserError
from verifiers.problem import Problem, Submission
from verifiers.protocol import Scope

OF_THE_PROBLEM = ("prompt", "answer", "reference", "problem_id", "truncated")
ONE, ALL = "completion", "completions"


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a function.

    Attributes:
        required: Those without a default.
        optional: Those with one.
        takes_rest: Whether `**columns` takes all other columns.
        scope: `group` where the function asks for `completions`: it judges all of a problem's.
    """

    required: tuple[str, ...]
    optional: tuple[str, ...]
    takes_rest: bool
    scope: Scope

    @classmethod
    def of(cls, function: Callable[..., Any], spec: str) -> Parameters:
        """Read a function's signature.

        Raises:
            UserError: It cannot be called by name.
        """
        required, optional, takes_rest = [], [], False
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                takes_rest = True
            elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
                raise UserError(
                    f"verifier {spec} takes {name!r} by position; values are passed by name, so "
                    "write it as an ordinary parameter"
                )
            elif parameter.default is parameter.empty:
                required.append(name)
            else:
                optional.append(name)
        if {ONE, ALL} <= {*required, *optional}:
            raise UserError(
                f"verifier {spec} asks for {ONE!r} and for {ALL!r}; the first judges one "
                "completion at a time, the second all completions of a problem together"
            )
        scope: Scope = "group" if ALL in (*required, *optional) else "submission"
        return cls(tuple(required), tuple(optional), takes_rest, scope)

    @property
    def supplied(self) -> tuple[str, ...]:
        """Names that have a value for every row."""
        return (ALL if self.scope == "group" else ONE, *OF_THE_PROBLEM)

    def find_missing(self, problem: Problem) -> list[str]:
        """Parameters for which this row has no value."""
        there = {*self.supplied, *problem.columns}
        return [name for name in self.required if name not in there]

    def select(self, submissions: Sequence[Submission]) -> dict[str, Any]:
        """The function's arguments by name: for one submission, or for a whole group."""
        problem = submissions[0].problem
        values: dict[str, Any] = {
            "prompt": problem.prompt,
            "answer": problem.reference,
            "reference": problem.reference,
            "problem_id": problem.id,
        }
        if self.scope == "group":
            values[ALL] = [submission.completion for submission in submissions]
            values["truncated"] = [submission.truncated for submission in submissions]
        else:
            (submission,) = submissions
            values[ONE] = submission.completion
            values["truncated"] = submission.truncated
        return self._choose({**problem.columns, **values}, problem.columns)

    def _choose(self, known: Mapping[str, Any], columns: Mapping[str, Any]) -> dict[str, Any]:
        wanted = (*self.required, *self.optional, *(columns if self.takes_rest else ()))
        return {name: known[name] for name in wanted if name in known}
