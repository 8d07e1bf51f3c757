"""The data and verifiers of a run, checked against each other before anything heavy is imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from grpo.config.data import DataConfig
from grpo.config.schema import RunConfig
from grpo.data.overlap import Overlap, find_overlaps
from grpo.data.overlong import leave_out_overlong
from grpo.data.problems import load_problems
from grpo.origins import check_origins
from grpo.paths import find_model
from grpo.trackers import check_trackers
from verifiers.errors import BadReference, UserError
from verifiers.problem import Problem
from verifiers.protocol import Verifier
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
        left_out: What is wrong with the problems that were left out, by the set's name.
        overlong: Those that were left out for the length of their prompt, by the set's name.
        overlaps: Held-out problems that are also trained on, by the held-out set's name.
    """

    model: str
    train_sets: ProblemSets
    eval_sets: ProblemSets
    verifier_options: Mapping[str, Mapping[str, Any]]
    left_out: Mapping[str, Sequence[str]]
    overlaps: Mapping[str, Sequence[Overlap]]
    overlong: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])

    @property
    def num_train_problems(self) -> int:
        """Of all training sets together."""
        return sum(map(len, self.train_sets.values()))

    @property
    def problems(self) -> Iterator[Problem]:
        """Every problem of every set."""
        for sets in (self.train_sets, self.eval_sets):
            for members in sets.values():
                yield from members

    def leave_out_overlong(
        self, prompts: Mapping[str, Sequence[int]], *, max_prompt_length: int, drop: bool
    ) -> Inputs:
        """The same without the problems whose prompt is too long.

        Args:
            prompts: Token ids by problem id.
            max_prompt_length: In tokens.
            drop: Whether problems may be left out.

        Raises:
            UserError: A prompt is longer and may not be left out, or a set would be left empty.
        """
        (train, train_long), (held_out, held_out_long) = (
            leave_out_overlong(sets, prompts, max_prompt_length=max_prompt_length, drop=drop)
            for sets in (self.train_sets, self.eval_sets)
        )
        places = {problem.source for problems in held_out.values() for problem in problems}
        overlaps = {
            name: [overlap for overlap in found if overlap.held_out in places]
            for name, found in self.overlaps.items()
        }
        return replace(
            self,
            train_sets=train,
            eval_sets=held_out,
            overlaps={name: found for name, found in overlaps.items() if found},
            overlong=train_long | held_out_long,
        )


def load_inputs(config: RunConfig, *, with_model: bool = True) -> Inputs:
    """Load the data, and check every reference with the verifier that will judge by it.

    Args:
        config: Of the run.
        with_model: False where `model` is no more than a name.

    Raises:
        UserError: Something the user gave is wrong.
        SandboxUnavailable: A verifier needs the sandbox, and there is none.
    """
    check_origins()
    check_trackers(config.report_to)
    local = with_model and config.served.needs_tokenizer
    model = find_model(config.model) if local else config.model
    train_sets, eval_sets = load_problem_sets(config)
    problems = [p for sets in (train_sets, eval_sets) for members in sets.values() for p in members]
    options = find_verifier_options(config, problems)
    verifiers = {name: build_verifier(name, chosen) for name, chosen in options.items()}
    try:
        train_kept, train_bad = _keep_verifiable(train_sets, verifiers, config.max_bad_references)
        eval_kept, eval_bad = _keep_verifiable(eval_sets, verifiers, config.max_bad_references)
    finally:
        for verifier in verifiers.values():
            verifier.close()
    return Inputs(
        model=model,
        train_sets=train_kept,
        eval_sets=eval_kept,
        verifier_options=options,
        left_out=train_bad | eval_bad,
        overlaps=find_overlaps(train_kept, eval_kept),
    )


def load_problem_sets(config: RunConfig) -> tuple[ProblemSets, ProblemSets]:
    """Load the training and the held-out problems, by the set's name, without judging any.

    Raises:
        UserError: A set cannot be read, or two have the same name.
    """
    if not config.data and not config.evaluation.data:
        raise UserError(
            "There is nothing to work on: neither data nor evaluation.data names a set. Name a "
            "recipe (data=gsm8k; docs/data.md lists them) or a file."
        )
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
    from_sets = _options_of_sets((*config.data, *config.evaluation.data))
    return {
        name: from_sets.get(name, {})
        | dict(config.verifiers.get(name, {}))
        | _sandbox_options(config, name)
        for name in sorted(used)
    }


def _options_of_sets(sets: Sequence[DataConfig]) -> dict[str, dict[str, Any]]:
    """What the sets say of their verifiers, each of which is one for the whole run.

    Raises:
        UserError: Two sets want one option differently.
    """
    options: dict[str, dict[str, Any]] = {}
    for data in sets:
        if data.verifier is None:
            if data.verifier_options:
                raise UserError(f"{data.label!r} has verifier_options, but no verifier; set it.")
            continue
        chosen = options.setdefault(data.verifier, {})
        for key, value in data.verifier_options.items():
            if chosen.setdefault(key, value) != value:
                raise UserError(
                    f"{data.label!r} wants {key}={value!r} of the verifier {data.verifier!r}, and "
                    f"another set wants {chosen[key]!r}; one run has one such verifier. Use the "
                    f"same value in both, or say it once in verifiers.{data.verifier}.{key} and "
                    "leave it out of the sets."
                )
    return options


def _sandbox_options(config: RunConfig, verifier: str) -> dict[str, Any]:
    if verifier != "code":
        return {}
    return config.sandbox.model_dump(exclude_none=True)


def _keep_verifiable(
    sets: ProblemSets, verifiers: Mapping[str, Verifier], max_bad: float
) -> tuple[dict[str, list[Problem]], dict[str, list[str]]]:
    """The problems whose reference can be read, and what was said of the others, by set."""
    kept: dict[str, list[Problem]] = {}
    left_out: dict[str, list[str]] = {}
    for name, problems in sets.items():
        kept[name], bad = [], []
        for problem in problems:
            try:
                verifiers[problem.verifier].prepare(problem)
            except BadReference as error:
                bad.append(str(error))
            else:
                kept[name].append(problem)
        if len(bad) > max_bad * len(problems) or (bad and not kept[name]):
            raise UserError(_describe_bad(name, bad, len(problems)))
        if bad:
            left_out[name] = bad
    return kept, left_out


def _describe_bad(name: str, bad: Sequence[str], total: int) -> str:
    shown = "\n  ".join(bad[:_NUM_PROBLEMS_SHOWN])
    more = len(bad) - _NUM_PROBLEMS_SHOWN
    rest = f"\n  and {more} more" if more > 0 else ""
    return (
        f"{len(bad)} of {total} problems of {name!r} cannot be verified (max_bad_references sets "
        f"the share that may be left out):\n  {shown}{rest}"
    )
