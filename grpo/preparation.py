"""Prompts, lengths and memory of a run: what is checked with the model's tokenizer at hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grpo.config.schema import RunConfig
from grpo.data.overlap import describe_overlaps
from grpo.data.prompts import PromptEncoder, read_max_positions
from grpo.environment import resolve_dtype
from grpo.inputs import Inputs
from grpo.memory_plan import Share, available_memory, check_memory, plan_memory, read_weight_names
from grpo.objective import make_objective
from grpo.rollout.options import Device
from grpo.training_options import (
    check_training_options,
    describe_packing,
    describe_reference,
    describe_trained,
)
from verifiers.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSide:
    """Stands for the tokenizer where a server has it."""

    stop_token_ids: tuple[int, ...] = ()
    chat_template: str | None = None
    added_stop_token: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Everything a run can know before a model loads.

    Attributes:
        inputs: Data and verifiers.
        encoder: The model's tokenizer.
        prompts: Token ids of every prompt, by problem id; none where a server makes them.
        memory: What the run will take; empty where that is not known.
        device: What engines and learner ranks compute on; None where no cluster was asked.
    """

    inputs: Inputs
    encoder: PromptEncoder | ServerSide
    prompts: Mapping[str, tuple[int, ...]]
    memory: Sequence[Share]
    device: Device | None = None


def prepare(config: RunConfig, inputs: Inputs, device: Device | None) -> Prepared:
    """Encode the prompts, and check that the run fits the model and the machine.

    Args:
        config: Of the run.
        inputs: Its data and verifiers.
        device: What it computes on; None where that is not known, and then nothing that depends on
            it is checked.

    Raises:
        UserError: Something the user gave is wrong.
    """
    make_objective(config)
    encoder = make_encoder(config, inputs.model)
    check_training_options(config, device=device, weights=read_weight_names(Path(inputs.model)))
    _check_lengths(config, inputs.model)
    inputs, prompts = _encode_prompts(config, inputs, encoder)
    return Prepared(
        inputs=inputs,
        encoder=encoder,
        prompts=prompts,
        memory=_plan_memory(config, inputs.model, device),
        device=device,
    )


def prepare_evaluation(config: RunConfig, inputs: Inputs, device: Device | None) -> Prepared:
    """As `prepare`, for an evaluation: there is no learner, and perhaps no model here either.

    Raises:
        UserError: Something the user gave is wrong.
    """
    if not config.served.needs_tokenizer:
        return Prepared(inputs=inputs, encoder=ServerSide(), prompts={}, memory=())
    encoder = make_encoder(config, inputs.model)
    if config.served.base_url is None:
        completion = config.evaluation.max_completion_length or config.max_completion_length
        _check_model_length(config, inputs.model, config.max_prompt_length + completion)
    inputs, prompts = _encode_prompts(config, inputs, encoder)
    return Prepared(inputs=inputs, encoder=encoder, prompts=prompts, memory=(), device=device)


def _encode_prompts(
    config: RunConfig, inputs: Inputs, encoder: PromptEncoder
) -> tuple[Inputs, Mapping[str, tuple[int, ...]]]:
    """The inputs whose prompts fit, and those prompts."""
    prompts = encoder.encode_all(inputs.problems)
    inputs = inputs.leave_out_overlong(
        prompts,
        max_prompt_length=config.max_prompt_length,
        drop=config.overlong_prompts == "drop",
    )
    return inputs, {problem.id: prompts[problem.id] for problem in inputs.problems}


def make_encoder(config: RunConfig, model: str) -> PromptEncoder:
    """The model's tokenizer, with what `prompting` says of its template."""
    prompting = config.prompting
    return PromptEncoder(
        model,
        chat_template=prompting.chat_template,
        template_options=prompting.template_options,
        completion_prefix=prompting.completion_prefix,
    )


def _plan_memory(config: RunConfig, model: str, device: Device | None) -> Sequence[Share]:
    if device != "cpu" or config.ray.address is not None:
        return ()  # the memory of other devices and machines is not known here
    shares = plan_memory(config, model, resolve_dtype(config.rollout.dtype, device))
    check_memory(shares, available_memory())
    return shares


def _check_lengths(config: RunConfig, model: str) -> None:
    longest = config.max_prompt_length + config.max_completion_length
    _check_model_length(config, model, longest)
    if config.max_tokens_per_microbatch < longest:
        raise UserError(
            f"max_tokens_per_microbatch={config.max_tokens_per_microbatch} is less than "
            f"max_prompt_length + "
            f"max_completion_length = {longest}, so one long sample would not fit; raise it."
        )


def _check_model_length(config: RunConfig, model: str, longest: int) -> None:
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


def describe_left_out(prepared: Prepared) -> list[str]:
    """Problems that the run goes without, in a line for each set and cause."""
    inputs = prepared.inputs
    return [
        f"left out   {name}: {len(complaints)} problems whose {cause}, the first: {complaints[0]}"
        for cause, by_set in (
            ("reference cannot be read", inputs.left_out),
            ("prompt is longer than max_prompt_length", inputs.overlong),
        )
        for name, complaints in by_set.items()
    ]


def describe(config: RunConfig, prepared: Prepared) -> list[str]:
    """The plan of a run in a few lines: sets, verifiers, prompts and the algebra of a step."""
    lines = [f"model      {config.model}"]
    for title, sets in (
        ("train", prepared.inputs.train_sets),
        ("held-out", prepared.inputs.eval_sets),
    ):
        for name, problems in sets.items():
            judges = Counter(problem.verifier for problem in problems)
            lines.append(
                f"{title:10} {name}: {len(problems)} problems, judged by "
                f"{', '.join(sorted(judges))}"
            )
    lines += describe_left_out(prepared)
    if config.sandbox.backend != "docker" and "code" in prepared.inputs.verifier_options:
        lines.append(
            f"UNSAFE     model-written code runs under sandbox.backend={config.sandbox.backend}, "
            f"which hostile programs can break out of"
        )
    for name, overlaps in prepared.inputs.overlaps.items():
        size = len(prepared.inputs.eval_sets[name])
        lines.append(f"WARNING    {describe_overlaps(name, overlaps, size)}")
    if prepared.encoder.added_stop_token is not None:
        lines.append(
            f"stop       the template ends a turn with token {prepared.encoder.added_stop_token}, "
            "which the model's configuration does not name as an end: it ends completions as well"
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
    total = sum(len(problems) for problems in prepared.inputs.train_sets.values())
    drawn = config.steps * config.prompts_per_step
    lines.append(
        f"run        {config.steps} steps = {drawn} prompts = {drawn / total:.2f} passes over "
        f"{total} problems"
    )
    lines.append(
        f"update     one optimizer step a step, in micro-batches of at most "
        f"{config.max_tokens_per_microbatch} tokens "
        f"on {config.learner.world_size} rank(s) under {config.learner.sharding}; the loss is "
        f"normalised over the whole batch"
    )
    lines += [
        f"rows       {describe_packing(config, prepared.device)}",
        f"trains     {describe_trained(config)}",
        f"reference  {describe_reference(config)}",
    ]
    if prepared.memory:
        total = sum(share.num_bytes for share in prepared.memory)
        parts = ", ".join(f"{share.part} {share.num_bytes / 1e9:.1f}" for share in prepared.memory)
        lines.append(f"memory     about {total / 1e9:.1f} GB: {parts}")
    return lines
