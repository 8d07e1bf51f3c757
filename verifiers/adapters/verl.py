"""verl's `compute_score(data_source, solution_str, ground_truth, extra_info)`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verifiers.adapters.foreign import ForeignSignature, read_completion
from verifiers.judge import Judge
from verifiers.problem import Problem, Submission
from verifiers.verdict import Status, Verdict

_SUPPLIED = frozenset({"data_source", "solution_str", "ground_truth", "extra_info"})


def adapt_compute_score(function: Callable[..., Any], spec: str) -> Callable[..., Any]:
    """A verl `compute_score` as a plain function for one completion.

    `data_source` is the row's column of that name (empty without one) and `extra_info` that
    column, or else all other columns. Of a mapping that the function returns, `score` counts.
    """
    wanted = ForeignSignature(function, supplied=_SUPPLIED, unknown={}, spec=spec)

    async def check(*, completion: str, answer: Any, **columns: Any) -> Any:
        given = {
            "data_source": columns.get("data_source") or "",
            "solution_str": completion,
            "ground_truth": answer,
            "extra_info": columns.get("extra_info") or columns,
        }
        others = {name: value for name, value in columns.items() if name not in _SUPPLIED}
        score = function(**wanted.keep({**others, **given}))
        if inspect.isawaitable(score):
            score = await score
        return score["score"] if isinstance(score, Mapping) else score

    check.__signature__ = wanted.declare(
        ("completion", "answer"),
        optional=("data_source", "extra_info"),
        takes_rest=True,
    )
    return check


def as_verl_compute_score(
    spec: str, options: Mapping[str, Any] | None = None
) -> Callable[..., dict[str, Any]]:
    """A verifier as verl's `custom_reward_function`.

    Every row gets the same keys: `score` (0.0 where nothing was verified, since verl takes no
    None), `acc` (1 for right), `valid` (0 where nothing was verified: leave such rows out of what
    you compute), `pred`, `verdict` and `reason`.

    Args:
        spec: A built-in verifier's name, or a function as `path/to/file.py:function`.
        options: Options of the verifier.

    Returns:
        A function whose attribute `close` ends the verifier's processes.

    Raises:
        UserError: No such verifier or option.
    """
    judge = Judge({spec: dict(options or {})})

    def compute_score(
        data_source: str,
        solution_str: str,
        ground_truth: Any,
        extra_info: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> dict[str, Any]:
        submission = _submission(spec, data_source, solution_str, ground_truth, extra_info)
        return _write_score(judge.verify(submission))

    compute_score.close = judge.close  # pyright: ignore[reportFunctionMemberAccess]
    return compute_score


def as_verl_batch_scores(
    spec: str, options: Mapping[str, Any] | None = None
) -> Callable[..., list[dict[str, Any]]]:
    """As `as_verl_compute_score`, for verl's batch reward manager.

    Rows with one data source and one `index` in their `extra_info` are one group for a verifier
    that judges whole groups.
    """
    judge = Judge({spec: dict(options or {})})

    def compute_scores(
        data_sources: Sequence[str],
        solution_strs: Sequence[str],
        ground_truths: Sequence[Any],
        extra_infos: Sequence[Mapping[str, Any] | None],
        **_: Any,
    ) -> list[dict[str, Any]]:
        rows = zip(data_sources, solution_strs, ground_truths, extra_infos, strict=True)
        submissions = [_submission(spec, *row, row=number) for number, row in enumerate(rows)]
        return [_write_score(verdict) for verdict in judge.verify_batch(submissions)]

    compute_scores.close = judge.close  # pyright: ignore[reportFunctionMemberAccess]
    return compute_scores


def _submission(
    spec: str,
    data_source: str,
    completion: str,
    gold: Any,
    extra: Mapping[str, Any] | None,
    *,
    row: int = 0,
) -> Submission:
    columns = {"data_source": data_source, **(extra or {})}
    identity = str(columns.get("index", f"row {row}"))
    problem = Problem(
        id=f"{data_source}/{identity}",
        prompt="",
        verifier=spec,
        reference=gold,
        source=f"{data_source}:{identity}",
        columns=columns,
    )
    return Submission(problem=problem, completion=read_completion(completion))


def _write_score(verdict: Verdict) -> dict[str, Any]:
    return {
        "score": 0.0 if verdict.score is None else verdict.score,
        "acc": float(verdict.status is Status.CORRECT),
        "valid": int(verdict.verified),
        "pred": verdict.extracted or "",
        "verdict": str(verdict.status),
        "reason": str(verdict.reason),
    }
