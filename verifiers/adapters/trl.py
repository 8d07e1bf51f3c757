"""TRL's reward functions: `f(prompts, completions, **columns) -> list[float | None]`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verifiers.adapters.foreign import (
    ForeignSignature,
    read_completion,
    read_prompt,
    write_completion,
    write_messages,
)
from verifiers.errors import UserError
from verifiers.judge import Judge
from verifiers.problem import Problem, Submission
from verifiers.verdict import Verdict

_OF_THE_TRAINER = {
    "completion_ids": "token ids are not known to a verifier",
    "trainer_state": "a verdict does not depend on the step",
    "environments": "there are no environments here",
}
_CALLBACKS = ("log_extra", "log_metric")
_NOT_COLUMNS = frozenset({"prompts", "completions", *_OF_THE_TRAINER, *_CALLBACKS})


def adapt_trl_reward(function: Callable[..., Any], spec: str) -> Callable[..., Any]:
    """A TRL reward function as a plain function for one completion.

    It is called with lists of one. Completions are message lists where the prompt is one. The
    reference answers to `solution`, `ground_truth`, `answer`, `reference` and `target`, unless the
    row has a column of that name. None means that the function abstains.

    Raises:
        UserError: The function cannot do without a value that only the trainer has.
    """
    supplied = frozenset({"prompts", "completions", *_CALLBACKS})
    wanted = ForeignSignature(function, supplied=supplied, unknown=_OF_THE_TRAINER, spec=spec)

    async def check(*, completion: str, prompt: Any, answer: Any, **columns: Any) -> Any:
        row = {**columns, **wanted.name_golds(answer, columns)}
        batch = {name: [value] for name, value in wanted.keep(row).items()}
        batch |= wanted.keep(
            {
                "prompts": [write_messages(prompt)],
                "completions": [write_completion(completion, prompt)],
                # What a function logs belongs to its trainer's metrics.
                "log_extra": _ignore,
                "log_metric": _ignore,
            }
        )
        rewards = function(**batch)
        if inspect.isawaitable(rewards):
            rewards = await rewards
        if len(rewards) != 1:
            raise ValueError(f"{spec} returned {len(rewards)} rewards for one completion")
        return rewards[0]

    check.__signature__ = wanted.declare(("completion", "prompt", "answer"))
    return check


def as_trl_reward(
    spec: str,
    options: Mapping[str, Any] | None = None,
    *,
    gold_column: str = "solution",
    name: str | None = None,
) -> Callable[..., list[float | None]]:
    """A verifier as a reward function for `GRPOTrainer(reward_funcs=...)`.

    Completions of one prompt are one group for a verifier that judges whole groups; of a group that
    is spread over several processes each of them sees its share.

    A submission that could not be verified gets None, which TRL leaves out of the group's
    statistics. Statuses and reasons go to `log_extra`, the share of unverified to `log_metric`.

    Args:
        spec: A built-in verifier's name, or a function as `path/to/file.py:function`.
        options: Options of the verifier.
        gold_column: Column of the reference answer.
        name: How TRL's metrics call it; by default the verifier's name.

    Returns:
        A function whose attribute `close` ends the verifier's processes (they also end with the
        trainer's).

    Raises:
        UserError: No such verifier or option; later, no such column.
    """
    judge = Judge({spec: dict(options or {})})

    def reward(
        prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> list[float | None]:
        problems = _read_problems(spec, prompts, columns, gold_column)
        verdicts = judge.verify_batch(
            [
                Submission(problem=problem, completion=read_completion(completion))
                for problem, completion in zip(problems, completions, strict=True)
            ]
        )
        _log(verdicts, columns)
        return [verdict.score for verdict in verdicts]

    reward.__name__ = name or spec.rpartition(":")[2]
    reward.close = judge.close  # pyright: ignore[reportFunctionMemberAccess]
    return reward


def _read_problems(
    spec: str, prompts: Sequence[Any], columns: Mapping[str, Any], gold_column: str
) -> list[Problem]:
    data = {name: values for name, values in columns.items() if name not in _NOT_COLUMNS}
    if gold_column not in data:
        raise UserError(
            f"the data set has no column {gold_column!r} with reference answers; it has "
            f"{', '.join(data) or 'none'}. Name the right one as gold_column"
        )
    golds = data.pop(gold_column)
    problems: list[Problem] = []
    first: dict[str, str] = {}
    for row, prompt in enumerate(prompts):
        place = f"{gold_column}[{row}]"
        columns = {name: values[row] for name, values in data.items()}
        # Completions of equal rows are one group, named after the first of them.
        identity = first.setdefault(repr((prompt, golds[row], columns)), place)
        problems.append(
            Problem(
                id=identity,
                prompt=read_prompt(prompt),
                verifier=spec,
                reference=golds[row],
                source=place,
                columns=columns,
            )
        )
    return problems


def _log(verdicts: Sequence[Verdict], columns: Mapping[str, Any]) -> None:
    """Tell the trainer why, where it asks; every process logs the same names."""
    if log_extra := columns.get("log_extra"):
        log_extra("verdict", [str(verdict.status) for verdict in verdicts])
        log_extra("reason", [str(verdict.reason) for verdict in verdicts])
        log_extra("extracted", [verdict.extracted or "" for verdict in verdicts])
    if log_metric := columns.get("log_metric"):
        unverified = sum(not verdict.verified for verdict in verdicts)
        log_metric("unverified_share", unverified / max(1, len(verdicts)))


def _ignore(*_: Any) -> None:
    return None
