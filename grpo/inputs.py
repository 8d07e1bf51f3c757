"""The data and verifiers of a run, checked against each other before anything heavy is imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo.config.schema import DataConfig, RunConfig
from grpo.data.problems import load_problems
from grpo.origins import check_origins
from grpo.paths import find_model
from verifiers.errors import UserError
from verifiers.problem import Problem
from verifiers.registry import build_verifier

_NUM_PROBLEMS_SHOWN = 5

ProblemSets = Mapping[str, Sequence[Problem]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What a run works on.

    Attributes:
        model: What `from_pretrained` takes.
        train_sets: Training problems, by the set's name.
        eval_sets: Held-out problems, by the set's name.
        verifier_options: Options of every verifier that a problem names.
    """

    model: str
    train_sets: ProblemSets
    eval_sets: ProblemSets
    verifier_options: Mapping[str, Mapping[str, Any]]

    @property
    def problems(self) -> Iterator[Problem]:
        """Every problem of every set."""
        for sets in (self.train_sets, self.eval_sets):
            for members in sets.values():
                yield from members


def load_inputs(config: RunConfig) -> Inputs:
    """Load the data, and check every reference with the verifier that will judge by it.

    Raises:
        UserError: Something the user gave is wrong.
        SandboxUnavailable: A verifier needs the sandbox, and there is none.
    """
    check_origins()
    model = find_model(config.model)
    train_sets, eval_sets = load_problem_sets(config)
    problems = [p for sets in (train_sets, eval_sets) for members in sets.values() for p in members]
    options = find_verifier_options(config, problems)
    _check_references(problems, options)
    return Inputs(model=model, train_sets=train_sets, eval_sets=eval_sets, verifier_options=options)


def load_problem_sets(config: RunConfig) -> tuple[ProblemSets, ProblemSets]:
    """Load the training and the held-out problems, by the set's name, without judging any.

    Raises:
        UserError: A set cannot be read, or two have the same name.
    """
    train_sets = _load_sets(config.data, "data")
    eval_sets = _load_sets(config.evaluation.data, "evaluation.data")
    _check_labels_differ(config)
    return train_sets, eval_sets


def _load_sets(sets: Sequence[DataConfig], option: str) -> dict[str, list[Problem]]:
    loaded: dict[str, list[Problem]] = {}
    for data in sets:
        if data.label in loaded:
            raise UserError(
                f"Two sets of {option} are called {data.label!r}; give each its own `name`."
            )
        loaded[data.label] = load_problems(data)
    return loaded


def _check_labels_differ(config: RunConfig) -> None:
    shared = {data.label for data in config.data} & {data.label for data in config.evaluation.data}
    if shared:
        raise UserError(
            f"A training set and a held-out set are both called {min(shared)!r}; give the "
            f"held-out one its own `name`."
        )


def find_verifier_options(
    config: RunConfig, problems: Sequence[Problem]
) -> dict[str, dict[str, Any]]:
    """Options of every verifier that a problem names.

    Raises:
        UserError: A verifier has options, and no problem names it.
    """
    used = {problem.verifier for problem in problems}
    unused = set(config.verifiers) - used
    if unused:
        raise UserError(
            f"verifiers.{min(unused)} has options, but no problem is judged by it; the verifiers "
            f"in use are: "
            f"{', '.join(sorted(used))}."
        )
    return {
        name: dict(config.verifiers.get(name, {})) | _sandbox_options(config, name)
        for name in sorted(used)
    }


def _sandbox_options(config: RunConfig, verifier: str) -> dict[str, Any]:
    if verifier != "code":
        return {}
    return config.sandbox.model_dump(exclude_none=True)


def _check_references(
    problems: Sequence[Problem], options: Mapping[str, Mapping[str, Any]]
) -> None:
    verifiers = {name: build_verifier(name, chosen) for name, chosen in options.items()}
    bad: list[str] = []
    try:
        for problem in problems:
            try:
                verifiers[problem.verifier].prepare(problem)
            except UserError as error:
                bad.append(str(error))
    finally:
        for verifier in verifiers.values():
            verifier.close()
    if bad:
        shown = "\n  ".join(bad[:_NUM_PROBLEMS_SHOWN])
        more = (
            f"\n  and {len(bad) - _NUM_PROBLEMS_SHOWN} more"
            if len(bad) > _NUM_PROBLEMS_SHOWN
            else ""
        )
        raise UserError(
            f"{len(bad)} of {len(problems)} problems cannot be verified:\n  {shown}{more}"
        )
