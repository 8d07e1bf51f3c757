"""PrimeIntellect's rubric functions: `f(prompt, completion, answer, state, ...) -> float`."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from verifiers.adapters.foreign import (
    ForeignSignature,
    read_completion,
    read_prompt,
    write_completion,
    write_messages,
)
from verifiers.judge import Judge
from verifiers.problem import Problem, Submission

_SUPPLIED = frozenset({"prompt", "completion", "answer", "state", "info", "task"})
_OF_THE_HOST = {"parser": "parsers belong to their environment"}


def adapt_rubric_function(function: Callable[..., Any], spec: str) -> Callable[..., Any]:
    """A rubric's function as a plain function for one completion.

    `completion` is a message list where the prompt is one; `state` is an empty dictionary, `info`
    and `task` are the row's columns of those names.

    Raises:
        UserError: The function cannot do without the environment's parser.
    """
    wanted = ForeignSignature(function, supplied=_SUPPLIED, unknown=_OF_THE_HOST, spec=spec)

    async def check(*, completion: str, prompt: Any, answer: Any, **columns: Any) -> Any:
        given = {
            "prompt": write_messages(prompt),
            "completion": write_completion(completion, prompt),
            "answer": answer,
            "state": {},
            "info": columns.get("info") or {},
            "task": columns.get("task") or "",
        }
        score = function(**wanted.keep({**columns, **given}))
        return await score if inspect.isawaitable(score) else score

    check.__signature__ = wanted.declare(
        ("completion", "prompt", "answer"),
        optional=("info", "task"),
    )
    return check


def as_rubric_function(
    spec: str, options: Mapping[str, Any] | None = None
) -> Callable[..., Awaitable[float]]:
    """A verifier as a function for `Rubric(funcs=[...])` or `add_reward_func`.

    It raises for nothing that a model wrote, since a rubric takes an exception for a reward of 0
    without a word. What was found is in `state["verigrad"]`: `status`, `reason`, `extracted`, and
    `verified`, which is False where the 0.0 means nothing.

    Args:
        spec: A built-in verifier's name, or a function as `path/to/file.py:function`.
        options: Options of the verifier.

    Returns:
        A function whose attribute `close` ends the verifier's processes.

    Raises:
        UserError: No such verifier or option.
    """
    judge = Judge({spec: dict(options or {})})

    async def reward(
        prompt: Any,
        completion: Any,
        answer: Any,
        state: dict[str, Any],
        info: Mapping[str, Any] | None = None,
        **_: Any,  # parsers, judges and other objects of the environment
    ) -> float:
        problem = Problem(
            id=str(state.get("example_id", "")),
            prompt=read_prompt(prompt),
            verifier=spec,
            reference=answer,
            source=f"example {state.get('example_id', '')}",
            columns=dict(info or {}),
        )
        submission = Submission(problem=problem, completion=read_completion(completion))
        verdict = await judge.averify(submission)
        state["verigrad"] = {
            "status": str(verdict.status),
            "reason": str(verdict.reason),
            "extracted": verdict.extracted,
            "verified": verdict.verified,
        }
        return 0.0 if verdict.score is None else verdict.score

    reward.__name__ = spec.rpartition(":")[2]
    reward.close = judge.close  # pyright: ignore[reportFunctionMemberAccess]
    return reward
