"""A whole evaluation from its configuration: start the parts, sample what is missing, score."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from grpo.cluster import describe_cluster
from grpo.config import RunConfig
from grpo.console import Console
from grpo.data.digest import compute_digest
from grpo.data.prompts import read_hub_commit
from grpo.environment import describe_environment
from grpo.errors import RunFailed
from grpo.evaluation.folder import open_folder, write_result
from grpo.evaluation.imports import StoredPool, read_completions
from grpo.evaluation.journal import Journal
from grpo.evaluation.record import (
    EvaluationRecord,
    SetRecord,
    compute_file_digest,
    compute_model_digest,
)
from grpo.evaluation.sampling import sample_groups
from grpo.evaluation.scores import EvaluationResult, score_set
from grpo.fetching import fetch_to_nodes
from grpo.incidents import IncidentLog
from grpo.inputs import Inputs, load_inputs
from grpo.joining import running_ray
from grpo.preparation import Prepared, ServerSide, describe_left_out, prepare_evaluation
from grpo.rollout.errors import RolloutError
from grpo.rollout.options import Device
from grpo.score_tables import describe_unverified
from grpo.timing import Timeline
from grpo.values import ScoredGroup
from grpo.wiring.engines import make_eval_sampling, make_served_pool
from grpo.wiring.machinery import Machinery, make_fleet
from verifiers.errors import UserError
from verifiers.fleet import FleetError, VerifierFleet
from verifiers.incident import NoteIncident
from verifiers.problem import Problem


def run_evaluation(
    config: RunConfig, console: Console, output: Path, completions: Path | None = None
) -> tuple[EvaluationResult, Path]:
    """Evaluate a policy on the held-out sets, or go on with an evaluation that was interrupted.

    Args:
        config: Names the model and the sets.
        console: Where it is shown.
        output: Folder for scores and completions; see `grpo.evaluation.folder.open_folder`.
        completions: A file with completions to judge in place of sampling any.

    Returns:
        The scores, and the file they are in.

    Raises:
        UserError: Something the user gave is wrong; no model was loaded.
        RunFailed: A part failed; what was sampled so far is kept.
    """
    inputs = load_inputs(config.model_copy(update={"data": ()}), with_model=completions is None)
    stored = None
    if completions is not None:
        config, stored = _read_stored(config, inputs, completions, console)
    with running_ray(
        config, inputs, prepare_evaluation if stored is None else _prepare_stored
    ) as prepared:
        for line in (*describe_left_out(prepared), *_describe_greedy(config, stored)):
            console.line(line)
        record = make_record(config, prepared, completions)
        with open_folder(output, record) as (folder, begun_before):
            if begun_before:
                console.line(f"going on with {folder}")
            begun = time.perf_counter()
            groups = _collect(config, prepared, folder, console, stored)
            result = make_result(config, prepared, groups, record, time.perf_counter() - begun)
            file = write_result(folder, result)
    unverified = describe_unverified(groups.values())
    for line in unverified:
        console.line(line)
    if unverified and stored is None:
        console.line(f"to try them again, remove {file} and give the same command")
    return result, file


def _describe_greedy(config: RunConfig, stored: StoredPool | None) -> list[str]:
    samples = config.evaluation.num_samples
    if stored is not None or config.evaluation.temperature > 0 or samples == 1:
        return []
    note = (
        f"note: at temperature 0 the {samples} samples of a problem are one and the same; "
        "evaluation.num_samples=1 says as much in a fraction of the time"
    )
    return [note]


def _collect(
    config: RunConfig,
    prepared: Prepared,
    folder: Path,
    console: Console,
    stored: StoredPool | None,
) -> dict[str, ScoredGroup]:
    """Every problem's group: those that the folder has, and the others as they are sampled."""
    problems = {p.id: p for members in prepared.inputs.eval_sets.values() for p in members}
    journal = Journal(folder)
    groups = journal.load(problems, config.evaluation.num_samples)
    if groups:
        console.line(f"{len(groups)} of {len(problems)} problems are done")
    missing = [problem for problem in problems.values() if problem.id not in groups]
    try:
        with closing(_sample(config, prepared, missing, console, stored)) as sampled:
            for group in sampled:
                journal.append(group)
                groups[group.problem.id] = group
                console.phase(f"{len(groups)} of {len(problems)} problems")
    except KeyboardInterrupt:
        console.line(
            f"{len(groups)} of {len(problems)} problems are done and kept in {folder}; the same "
            "command goes on with the others"
        )
        raise
    return groups


def _sample(
    config: RunConfig,
    prepared: Prepared,
    problems: list[Problem],
    console: Console,
    stored: StoredPool | None,
) -> Generator[ScoredGroup, None, None]:
    if not problems:
        return
    with _running(config, prepared, console, stored) as (pool, fleet):
        yield from sample_groups(
            pool,
            fleet,
            problems,
            prompts=prepared.prompts,
            sampling=make_eval_sampling(config, prepared),
            num_samples=config.evaluation.num_samples,
            seed=config.seed,
            prefix=config.prompting.completion_prefix,
        )


@contextmanager
def _running(
    config: RunConfig, prepared: Prepared, console: Console, stored: StoredPool | None
) -> Iterator[Any]:
    note = IncidentLog(write=lambda _: None, say=console.line).note
    pool, fleet, node_ids = make_judging(config, prepared, stored, note)
    try:
        if node_ids:
            console.phase("fetching the model")
            fetch_to_nodes(prepared.inputs.model, node_ids, console.line)
        console.phase("starting")
        pool.start()
        fleet.start()
        fleet.wait_ready(config.start_timeout_s)
        pool.wait_ready()
        yield pool, fleet
    except (RolloutError, FleetError) as error:
        raise RunFailed(
            f"{error} (--debug shows where; the same command goes on from what is done)"
        ) from error
    finally:
        console.phase("stopping")
        fleet.close()
        pool.close()


def make_judging(
    config: RunConfig, prepared: Prepared, stored: StoredPool | None, note: NoteIncident
) -> tuple[Any, VerifierFleet, frozenset[str]]:
    """Who answers, who judges, and the nodes that the model runs on, where it runs here at all.

    Only then is anything set aside for engines.
    """
    if stored is not None:
        return stored, make_fleet(config, prepared, note), frozenset()
    if config.served.base_url is not None:
        served = make_served_pool(config, prepared)
        return served, make_fleet(config, prepared, note), frozenset()
    machinery = Machinery(config, prepared, with_learner=False, note=note, timeline=Timeline())
    return machinery.pool, machinery.fleet, machinery.placement.node_ids


def _read_stored(
    config: RunConfig, inputs: Inputs, file: Path, console: Console
) -> tuple[RunConfig, StoredPool]:
    """The stored completions; as many of each problem count as the problem with most has."""
    problems = [problem for members in inputs.eval_sets.values() for problem in members]
    completions, passed_over = read_completions(file, problems)
    for reason, count in passed_over.items():
        console.line(f"{file}: {count} rows are {reason}, and were passed over")
    num_samples = max(map(len, completions.values()))
    too_large = [k for k in config.evaluation.k if k > num_samples]
    if too_large:
        raise UserError(
            f"evaluation.k={too_large[0]} is more than the {num_samples} completions that {file} "
            "has of a problem; pass@k needs at least k."
        )
    evaluation = config.evaluation.model_copy(update={"num_samples": num_samples})
    return config.model_copy(update={"evaluation": evaluation}), StoredPool(completions)


def _prepare_stored(_config: RunConfig, inputs: Inputs, _device: Device) -> Prepared:
    return Prepared(inputs=inputs, encoder=ServerSide(), prompts={}, memory=())


def make_record(
    config: RunConfig, prepared: Prepared, completions: Path | None = None
) -> EvaluationRecord:
    """What is evaluated, and how."""
    sampling = make_eval_sampling(config, prepared)
    served = config.served
    sets = {data.label: data for data in config.evaluation.data}
    return EvaluationRecord(
        model=config.model,
        revision=_find_revision(prepared.inputs.model)
        if served.base_url is None and completions is None
        else None,
        completions=compute_file_digest(completions) if completions is not None else None,
        served=served.model_dump(mode="json") if served.base_url is not None else None,
        chat_template=prepared.encoder.chat_template,
        prompting=config.prompting.model_dump(mode="json"),
        num_samples=config.evaluation.num_samples,
        seed=config.seed,
        sampling={
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "min_p": sampling.min_p,
            "max_completion_length": sampling.max_completion_length,
            "stop_token_ids": list(sampling.stop_token_ids),
            "dtype": config.rollout.dtype,
        },
        verifiers={name: dict(chosen) for name, chosen in prepared.inputs.verifier_options.items()},
        sets=tuple(
            SetRecord(
                name=name,
                digest=compute_digest(problems),
                num_problems=len(problems),
                source=sets[name].model_dump(mode="json"),
            )
            for name, problems in prepared.inputs.eval_sets.items()
        ),
    )


def _find_revision(model: str) -> str | None:
    folder = Path(model)
    return compute_model_digest(folder) if folder.is_dir() else read_hub_commit(model)


def make_result(
    config: RunConfig,
    prepared: Prepared,
    groups: Mapping[str, ScoredGroup],
    record: EvaluationRecord,
    seconds: float,
) -> EvaluationResult:
    """Score every set, problems in their own order however they came in."""
    evaluation = config.evaluation
    return EvaluationResult(
        step=0,
        policy_version=0,
        model=config.served.model or config.model,
        temperature=evaluation.temperature,
        top_p=evaluation.top_p,
        max_completion_length=record.sampling["max_completion_length"],
        seed=config.seed,
        seconds=seconds,
        sets=tuple(
            score_set(
                name,
                [groups[problem.id] for problem in problems],
                num_samples=evaluation.num_samples,
                ks=evaluation.k,
                seed=config.seed,
            )
            for name, problems in prepared.inputs.eval_sets.items()
        ),
        record=record,
        environment=describe_environment() | describe_cluster(config.ray),
    )
