"""A user's plain function as a verifier: arguments by name, run in a process that can be killed."""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from verifiers.callables import load_function
from verifiers.errors import BadReference, UserError
from verifiers.problem import Problem, Submission
from verifiers.protocol import Placement
from verifiers.verdict import Reason, Status, Verdict
from verifiers.workers import Failure, Outcome, WorkerPool, WorkerSettings

SUBMISSION_NAMES = ("completion", "prompt", "answer", "reference", "problem_id", "truncated")


@dataclass(frozen=True, slots=True)
class _Signature:
    """Which values a function wants."""

    required: tuple[str, ...]
    optional: tuple[str, ...]
    takes_rest: bool

    @classmethod
    def of(cls, function: Callable[..., Any], spec: str) -> _Signature:
        required, optional, takes_rest = [], [], False
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                takes_rest = True
            elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
                raise UserError(
                    f"verifier {spec} takes {name!r} by position; values are passed by name, so "
                    "write it as an "
                    "ordinary parameter"
                )
            elif parameter.default is parameter.empty:
                required.append(name)
            else:
                optional.append(name)
        return cls(tuple(required), tuple(optional), takes_rest)

    def select(self, values: Mapping[str, Any], columns: Mapping[str, Any]) -> dict[str, Any]:
        known = {**columns, **values}
        wanted = (*self.required, *self.optional, *(columns if self.takes_rest else ()))
        return {name: known[name] for name in wanted if name in known}


class FunctionVerifier:
    """Judges with `def check(completion, answer, **columns) -> float | bool | None | Verdict`.

    Sync or async.

    Parameters are matched by name to `completion`, `prompt`, `answer` (or `reference`),
    `problem_id`, `truncated`, then to the data set's columns. True or a score of at least
    `threshold` is right; None means that the function abstains; an exception means not verified,
    never a reward of 0.

    Args:
        spec: `path/to/file.py:function` or `package.module:function`.
        threshold: Score from which an answer counts as right.
        cpu_limit_s: CPU seconds for one call; beyond it the completion gets `LIMIT`.
        wall_limit_s: Wall seconds for one call; beyond it the submission is not verified.
        memory_mb: Address space of the process that runs the function.
        concurrency: Calls that run at the same time in one verifier worker.
        poison_file: JSONL file to which calls that cost a worker process are appended.

    Raises:
        UserError: The function cannot be imported or called by name.
    """

    version: int = 1
    placement: Placement = "worker"

    def __init__(
        self,
        spec: str,
        *,
        threshold: float = 1.0,
        cpu_limit_s: float = 10.0,
        wall_limit_s: float = 30.0,
        memory_mb: int = 8192,
        concurrency: int = 1,
        poison_file: str | None = None,
    ) -> None:
        self.name = spec
        self._threshold = threshold
        self._signature = _Signature.of(load_function(spec), spec)
        settings = WorkerSettings(
            target="verifiers.plugin:call_function",
            setup="verifiers.callables:load_function",
            setup_args=(spec,),
            cpu_limit_s=cpu_limit_s,
            wall_limit_s=wall_limit_s,
            memory_mb=memory_mb,
            max_resident_mb=memory_mb,
        )
        self._pool = WorkerPool(settings, size=concurrency, poison_file=poison_file)

    def prepare(self, problem: Problem) -> None:
        """Check that the row supplies every parameter that has no default.

        Raises:
            BadReference: One is missing.
        """
        missing = [
            name
            for name in self._signature.required
            if name not in SUBMISSION_NAMES and name not in problem.columns
        ]
        if missing:
            columns = ", ".join(problem.columns) or "none"
            raise BadReference(
                f"{problem.source}: verifier {self.name} needs {', '.join(map(repr, missing))}, "
                "which this row does "
                f"not have; its columns are {columns}, and every function may also ask for "
                f"{', '.join(SUBMISSION_NAMES)}. Rename the parameter, or give it a default"
            )

    def verify(self, submission: Submission) -> Verdict:
        """Call the function in a worker process."""
        started = time.perf_counter()
        verdict = self._judge(self._pool.run(self.name, self.select_arguments(submission)))
        return replace(verdict, seconds=time.perf_counter() - started)

    def select_arguments(self, submission: Submission) -> dict[str, Any]:
        """The function's arguments for a submission, by name."""
        problem = submission.problem
        values = {
            "completion": submission.completion,
            "prompt": problem.prompt,
            "answer": problem.reference,
            "reference": problem.reference,
            "problem_id": problem.id,
            "truncated": submission.truncated,
        }
        return self._signature.select(values, problem.columns)

    def close(self) -> None:
        """End the worker processes."""
        self._pool.close()

    def _judge(self, outcome: Outcome) -> Verdict:
        match outcome.failure:
            case None:
                return self._grade(outcome.value)
            case Failure.DEADLINE | Failure.MEMORY:
                reason = Reason(outcome.failure.value)
                return self._verdict(Status.LIMIT, reason, 0.0, detail=outcome.detail)
            case Failure.RAISED:
                reason = Reason.VERIFIER_RAISED
            case Failure.STALLED:
                reason = Reason.STALLED
            case Failure.DIED:
                reason = Reason.WORKER_DIED
        return self._verdict(Status.ERROR, reason, None, detail=outcome.detail)

    def _grade(self, value: object) -> Verdict:
        if isinstance(value, Verdict):
            return value
        if value is None:
            return self._verdict(Status.ERROR, Reason.ABSTAINED, None)
        if not isinstance(value, float) or not math.isfinite(value):
            detail = f"returned {value!r}; return a finite number, a bool, None or a Verdict"
            return self._verdict(Status.ERROR, Reason.VERIFIER_RAISED, None, detail=detail)
        if value >= self._threshold:
            return self._verdict(Status.CORRECT, Reason.ACCEPTED, value)
        return self._verdict(Status.INCORRECT, Reason.REJECTED, value)

    def _verdict(
        self, status: Status, reason: Reason, score: float | None, *, detail: str | None = None
    ) -> Verdict:
        return Verdict(
            status=status,
            reason=reason,
            score=score,
            verifier=f"{self.name}@{self.version}",
            detail=detail,
        )


@functools.cache
def _loaded(spec: str) -> Callable[..., Any]:
    return load_function(spec)


def call_function(spec: str, arguments: Mapping[str, Any]) -> Any:
    """Run in a worker: call the function.

    Numbers come back as plain floats, whatever library made them.
    """
    value = _loaded(spec)(**arguments)
    if inspect.isawaitable(value):
        value = asyncio.run(_finish(value))
    if value is None or isinstance(value, Verdict | str | bytes):
        return value
    try:
        return float(value)  # bool, int, Fraction, numpy and torch scalars
    except (TypeError, ValueError):
        return repr(value)


async def _finish(awaitable: Any) -> Any:
    return await awaitable
