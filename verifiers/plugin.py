"""A user's plain function as a verifier: arguments by name, run in a process that can be killed."""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from verifiers.arguments import ALL, Parameters
from verifiers.callables import load_function, waits
from verifiers.errors import BadReference
from verifiers.problem import Problem, Submission
from verifiers.protocol import Verifier
from verifiers.replies import Ruling
from verifiers.verdict import Reason, Status, Verdict
from verifiers.workers import Outcome, WorkerPool, WorkerSettings

ASYNC_CONCURRENCY = 16


class FunctionVerifier(Verifier):
    """Judges with `def check(completion, answer, **columns) -> float | bool | None | Verdict`.

    Sync or async. With `completions` in place of `completion` the function judges all completions
    of a problem together, and returns a list with a value for each.

    Parameters are matched by name to `completion` (or `completions`), `prompt`, `answer` (or
    `reference`), `problem_id`, `truncated`, then to the data set's columns. True or a score of at
    least `threshold` is right; None means that the function abstains; an exception means not
    verified, never a reward of 0.

    Args:
        spec: `path/to/file.py:function` or `package.module:function`.
        threshold: Score from which an answer counts as right.
        cpu_limit_s: CPU seconds for one call; beyond it the completion gets `LIMIT`, or each
            completion of the group.
        wall_limit_s: Wall seconds for one call; beyond it the submission is not verified.
        start_limit_s: Wall seconds in which a new process must have imported the function.
        memory_mb: Address space of the process that runs the function.
        concurrency: Calls that run at the same time in one verifier worker, each in a process of
            its own; by default 1, and 16 for an `async def`, which is one that waits.
        poison_file: JSONL file to which calls that cost a worker process are appended.

    Raises:
        UserError: The function cannot be imported or called by name.
    """

    version = 1

    def __init__(
        self,
        spec: str,
        *,
        threshold: float = 1.0,
        cpu_limit_s: float = 10.0,
        wall_limit_s: float = 30.0,
        start_limit_s: float = 120.0,
        memory_mb: int = 8192,
        concurrency: int | None = None,
        poison_file: str | None = None,
    ) -> None:
        self.name = spec
        self._threshold = threshold
        self._parameters = Parameters.of(load_function(spec), spec)
        if concurrency is None:
            concurrency = ASYNC_CONCURRENCY if waits(spec) else 1
        self.concurrency = concurrency
        self.scope = self._parameters.scope
        settings = WorkerSettings(
            target="verifiers.plugin:call_function",
            setup="verifiers.callables:load_function",
            setup_args=(spec,),
            cpu_limit_s=cpu_limit_s,
            wall_limit_s=wall_limit_s,
            start_limit_s=start_limit_s,
            memory_mb=memory_mb,
            max_resident_mb=memory_mb,
        )
        self._pool = WorkerPool(settings, size=concurrency, poison_file=poison_file)

    def prepare(self, problem: Problem) -> None:
        """Check that the row supplies every parameter that has no default.

        Raises:
            BadReference: One is missing.
        """
        if missing := self._parameters.find_missing(problem):
            columns = ", ".join(problem.columns) or "none"
            raise BadReference(
                f"{problem.source}: verifier {self.name} needs {', '.join(map(repr, missing))}, "
                f"which this row does not have; its columns are {columns}, and every function "
                f"may also ask for {', '.join(self._parameters.supplied)}. Rename the parameter, "
                "or give it a default"
            )

    def verify(self, submission: Submission) -> Verdict:
        """Call the function in a worker process, for this completion alone."""
        return self._call([submission])[0]

    def verify_batch(self, submissions: Sequence[Submission]) -> list[Verdict]:
        """Judge completions one by one, or, where the function wants the group, all in one call."""
        if self.scope == "group":
            return self._call(submissions)
        return super().verify_batch(submissions)

    def select_arguments(self, submissions: Sequence[Submission]) -> dict[str, Any]:
        """The function's arguments for a call, by name."""
        return self._parameters.select(submissions)

    def close(self) -> None:
        """End the worker processes."""
        self._pool.close()

    def _call(self, submissions: Sequence[Submission]) -> list[Verdict]:
        started = time.perf_counter()
        outcome = self._pool.run(self.name, self.select_arguments(submissions))
        seconds = time.perf_counter() - started
        verdicts = self._judge(outcome, len(submissions))
        return [replace(verdict, seconds=seconds / len(verdicts)) for verdict in verdicts]

    def _judge(self, outcome: Outcome, num_completions: int) -> list[Verdict]:
        if outcome.failure is not None:
            return [self._sign(Ruling.failed(outcome))] * num_completions
        if self.scope == "submission":
            return [self._grade(outcome.value)]
        values = outcome.value
        if not isinstance(values, list) or len(values) != num_completions:
            found = f"{len(values)} values" if isinstance(values, list) else repr(values)
            detail = f"returned {found} for {num_completions} completions; return a list of as many"
            return [self._sign(_illegal(detail))] * num_completions
        return [self._grade(value) for value in values]

    def _grade(self, value: object) -> Verdict:
        if isinstance(value, Verdict):
            return value
        if value is None:
            return self._sign(Ruling(status=Status.ERROR, reason=Reason.ABSTAINED))
        if not isinstance(value, float) or not math.isfinite(value):
            detail = f"returned {value!r}; return a finite number, a bool, None or a Verdict"
            return self._sign(_illegal(detail))
        if value >= self._threshold:
            return self._sign(Ruling(status=Status.CORRECT, reason=Reason.ACCEPTED, score=value))
        return self._sign(Ruling(status=Status.INCORRECT, reason=Reason.REJECTED, score=value))

    def _sign(self, ruling: Ruling) -> Verdict:
        return ruling.sign(self.label, time.perf_counter())


def _illegal(detail: str) -> Ruling:
    return Ruling(status=Status.ERROR, reason=Reason.VERIFIER_RAISED, detail=detail)


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
    listed = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
    if ALL in arguments and listed:
        return [_to_plain(item) for item in value]
    return _to_plain(value)


def _to_plain(value: Any) -> Any:
    if value is None or isinstance(value, Verdict | str | bytes):
        return value
    try:
        return float(value)  # bool, int, Fraction, numpy and torch scalars
    except (TypeError, ValueError):
        return repr(value)


async def _finish(awaitable: Any) -> Any:
    return await awaitable
