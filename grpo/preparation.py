"""Everything that is checked before a model loads, and what the checks leave for the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo.config.schema import DataConfig, RunConfig
from grpo.data.problems import load_problems
from grpo.data.prompts import PromptEncoder, read_max_positions
from grpo.environment import find_device, resolve_dtype
from grpo.memory_plan import Share, available_memory, check_memory, plan_memory
from grpo.objective import make_objective
from grpo.origins import check_origins
from grpo.paths import find_model
from verifiers.errors import UserError
from verifiers.problem import Problem
from verifiers.registry import build_verifier

_NUM_PROBLEMS_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The checked inputs of a run.

    Attributes:
        model: What `from_pretrained` takes.
        encoder: The model's tokenizer.
        train_sets: Training problems, by the set's name.
        eval_sets: Held-out problems, by the set's name.
        prompts: Token ids of every prompt, by problem id.
        verifier_options: Options of every verifier that a problem names.
        memory: What the run will take; empty where that is not known.
    """

    model: str
    encoder: PromptEncoder
    train_sets: Mapping[str, Sequence[Problem]]
    eval_sets: Mapping[str, Sequence[Problem]]
    prompts: Mapping[str, tuple[int, ...]]
    verifier_options: Mapping[str, Mapping[str, Any]]
    memory: Sequence[Share]


def prepare(config: RunConfig) -> Prepared:
    """Load the data and check it against its verifiers and the model's tokenizer.

    Raises:
        UserError: Something the user gave is wrong.
        SandboxUnavailable: A verifier needs the sandbox, and there is none.
    """
    check_origins()
    model = find_model(config.model)
    train_sets = _load_sets(config.data, "data")
    eval_sets = _load_sets(config.evaluation.data, "evaluation.data")
    _check_labels_differ(config)
    problems = [
        problem
        for sets in (train_sets, eval_sets)
        for members in sets.values()
        for problem in members
    ]
    options = _verifier_options(config, problems)
    _check_references(problems, options)
    encoder = PromptEncoder(model)
    make_objective(config)
    _check_lengths(config, model)
    memory = _plan_memory(config, model)
    return Prepared(
        model=model,
        encoder=encoder,
        train_sets=train_sets,
        eval_sets=eval_sets,
        prompts=encoder.encode_all(problems, config.max_prompt_length),
        verifier_options=options,
        memory=memory,
    )


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


def _verifier_options(config: RunConfig, problems: Sequence[Problem]) -> dict[str, dict[str, Any]]:
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


def _plan_memory(config: RunConfig, model: str) -> Sequence[Share]:
    if find_device() != "cpu" or config.ray.address is not None:
        return ()  # the memory of other devices and machines is not known here
    shares = plan_memory(config, model, resolve_dtype(config.rollout.dtype))
    check_memory(shares, available_memory())
    return shares


def _check_lengths(config: RunConfig, model: str) -> None:
    longest = config.max_prompt_length + config.max_completion_length
    positions = read_max_positions(model)
    if positions is not None and positions < longest:
        raise UserError(
            f"model={config.model!r} has {positions} positions, fewer than max_prompt_length + "
            f"max_completion_length = {longest}; lower one of the two."
        )
    limit = config.rollout.max_model_len
    if limit is not None and limit < longest:
        raise UserError(
            f"rollout.max_model_len={limit} is less than max_prompt_length + "
            f"max_completion_length = {longest}; "
            "raise it, or leave it out."
        )
    if config.max_tokens_per_microbatch < longest:
        raise UserError(
            f"max_tokens_per_microbatch={config.max_tokens_per_microbatch} is less than "
            f"max_prompt_length + "
            f"max_completion_length = {longest}, so one long sample would not fit; raise it."
        )


def describe(config: RunConfig, prepared: Prepared) -> list[str]:
    """The plan of a run in a few lines: sets, verifiers, prompts and the algebra of a step."""
    lines = [f"model      {config.model}"]
    for title, sets in (("train", prepared.train_sets), ("held-out", prepared.eval_sets)):
        for name, problems in sets.items():
            judges = Counter(problem.verifier for problem in problems)
            lines.append(
                f"{title:10} {name}: {len(problems)} problems, judged by "
                f"{', '.join(sorted(judges))}"
            )
    lengths = [len(ids) for ids in prepared.prompts.values()]
    lines.append(
        f"prompts    {min(lengths)} to {max(lengths)} tokens, of "
        f"max_prompt_length={config.max_prompt_length}"
    )
    lines.append(
        f"step       {config.prompts_per_step} prompts x {config.num_generations} completions = "
        f"{config.completions_per_step} completions of at most {config.max_completion_length} "
        f"tokens"
    )
    total = sum(len(problems) for problems in prepared.train_sets.values())
    drawn = config.steps * config.prompts_per_step
    lines.append(
        f"run        {config.steps} steps = {drawn} prompts = {drawn / total:.2f} passes over "
        f"{total} problems"
    )
    lines.append(
        f"update     one optimizer step a step, in micro-batches of at most "
        f"{config.max_tokens_per_microbatch} tokens "
        f"on {config.learner.world_size} rank(s); the loss is normalised over the whole batch"
    )
    if prepared.memory:
        total = sum(share.num_bytes for share in prepared.memory)
        parts = ", ".join(f"{share.part} {share.num_bytes / 1e9:.1f}" for share in prepared.memory)
        lines.append(f"memory     about {total / 1e9:.1f} GB: {parts}")
    return lines
