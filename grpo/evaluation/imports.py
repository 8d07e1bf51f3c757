"""Completions that were made elsewhere: our own files, EvalPlus's, lm-eval's and lighteval's."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from grpo.data.files import Row, read_file
from grpo.values import Rollout, RolloutRequest, SamplingOptions
from verifiers.errors import UserError
from verifiers.problem import Problem
from verifiers.verdict import Reason

_ID_COLUMNS = ("problem_id", "task_id", "id", "question_id")
_TEXT_COLUMNS = ("completion", "text", "output", "response", "prediction")


class Completion(NamedTuple):
    """A stored completion, and whether it was cut off where it was made."""

    text: str
    truncated: bool = False


def read_completions(
    file: Path, problems: Sequence[Problem]
) -> tuple[dict[str, list[Completion]], dict[str, int]]:
    """Read stored completions, by problem id.

    Args:
        file: In any of the shapes, and in any format that data sets have.
        problems: What they answer. Ids are compared with and without the set's name; lm-eval and
            lighteval name a problem by its place in the set.

    Returns:
        The completions, and how many rows were passed over, by reason.

    Raises:
        UserError: A row is in no known shape, or no row belongs to any problem.
    """
    names = _index(problems)
    found: dict[str, list[Completion]] = {problem.id: [] for problem in problems}
    passed_over: dict[str, int] = {}
    example = ""
    for number, (place, row) in enumerate(read_file(file)):
        key, texts = _read_row(row, number, place)
        name = names.get(key)
        if name is None:
            example = example or str(key)
            passed_over["of no problem"] = passed_over.get("of no problem", 0) + 1
        else:
            # Our own samples say how they ended; other files do not.
            truncated = row.get("finish_reason") == "length"
            found[name] += [Completion(text, truncated) for text in texts]
    if not any(found.values()):
        raise UserError(
            f"{file}: no row belongs to a problem; its first id is {example!r}, and the problems "
            f"are called {problems[0].id!r} and so on. Is it of another set?"
        )
    return found, passed_over


def _read_row(row: Row, number: int, place: str) -> tuple[str | int, list[str]]:
    """The row's problem, by id or by place in its set, and its completions."""
    if "resps" in row and "doc_id" in row:  # lm-eval: samples_TASK_DATE.jsonl
        return int(row["doc_id"]), [str(text) for text in _flatten(row["resps"])]
    if isinstance(row.get("model_response"), Mapping):  # lighteval's details
        return number, [str(text) for text in _flatten(row["model_response"].get("text") or [])]
    if "predictions" in row:  # lighteval's details before that
        return number, [str(text) for text in _flatten(row["predictions"])]
    identity = next((row[name] for name in _ID_COLUMNS if row.get(name) is not None), number)
    key = identity if identity is number else str(identity)
    if isinstance(row.get("solution"), str) and "task_id" in row:  # EvalPlus: whole programs
        return key, [f"```python\n{row['solution']}\n```"]
    for name in _TEXT_COLUMNS:
        if row.get(name) is not None:
            return key, [str(text) for text in _flatten(row[name])]
    raise UserError(
        f"{place} has no completion: its columns are {', '.join(sorted(row))}. Known are "
        f"{', '.join(_TEXT_COLUMNS)}, EvalPlus's solution, lm-eval's resps, and lighteval's "
        "predictions and model_response."
    )


def _flatten(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _flatten(item)
    else:
        yield value


def _index(problems: Sequence[Problem]) -> dict[str | int, str]:
    """Problem ids by every name that a file may use."""
    names: dict[str | int, str] = {}
    for number, problem in enumerate(problems):
        _, _, short = problem.id.partition("/")
        for name in (number, short, problem.id):
            names.setdefault(name, problem.id)
    return names


class StoredPool:
    """Stored completions as a pool, so that they are judged as fresh ones are.

    Args:
        completions: By problem id.
    """

    def __init__(self, completions: Mapping[str, Sequence[Completion]]) -> None:
        self._completions = completions

    def start(self) -> None:
        """Nothing."""

    def wait_ready(self) -> None:
        """Nothing."""

    def generate(
        self,
        requests: Sequence[RolloutRequest],
        _sampling: SamplingOptions,
        _on_wait: Callable[[], None] = lambda: None,
    ) -> Generator[Rollout, None, None]:
        """The completions in their order; one that is missing ends with `abort`."""
        for request in requests:
            found = self._completions[request.problem_id]
            for member, seed in enumerate(request.seeds):
                text, finish_reason = "", "abort"
                if member < len(found):
                    text = found[member].text
                    finish_reason = "length" if found[member].truncated else "stop"
                yield Rollout(
                    problem_id=request.problem_id,
                    member=member,
                    prompt_ids=request.prompt_ids,
                    completion_ids=(),
                    logprobs=(),
                    text=text,
                    finish_reason=finish_reason,
                    policy_versions=(),
                    seed=seed,
                )

    def explain(self, _rollout: Rollout) -> tuple[Reason, str]:
        """Why a completion is missing."""
        return Reason.NOT_SAMPLED, "the file has no such completion"

    def close(self) -> None:
        """Nothing."""
