"""A whole training run from its configuration: start the parts, train, stop the parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from grpo.checkpointer import RunCheckpointer
from grpo.checkpoints import DiskFull
from grpo.config import RunConfig
from grpo.console import Console
from grpo.duration import resolve_duration
from grpo.errors import RunFailed
from grpo.fetching import fetch_to_nodes
from grpo.first_weights import set_off
from grpo.incidents import IncidentLog
from grpo.inputs import load_inputs
from grpo.joining import running_ray
from grpo.learner.errors import LearnerError
from grpo.learner.invariants import InvariantBroken
from grpo.ledger import FILE as LEDGER_FILE
from grpo.ledger import PromptLedger
from grpo.loop import train
from grpo.objective import make_objective, make_reward_policy
from grpo.placement import PlacementHolder, list_nodes
from grpo.placement_plan import describe_placement
from grpo.preparation import Prepared, describe
from grpo.recorder import RunRecorder
from grpo.resuming import Start, find_start, keep_changes, note_device, restore_parts
from grpo.rollout.errors import RolloutError
from grpo.run_directory import RunDirectory
from grpo.run_folder import make_folder, write_environment
from grpo.skips import SkipGuard
from grpo.stopping import StopSignal
from grpo.timing import Laps, Timeline
from grpo.trackers import Tracker, open_trackers
from grpo.wiring.machinery import Machinery
from grpo.wiring.parts import make_parts, make_turns
from grpo.wiring.placement import describe_gpu, find_transport, make_placed_parts, reserve_placement
from grpo.wiring.recovery import make_publisher, make_recovery
from grpo.wiring.stages import make_source
from verifiers.fleet import FleetError
from verifiers.incident import NoteIncident


def run_training(
    config: RunConfig, console: Console, *, resume: str | None, fork: str | None, begun: float
) -> tuple[bool, dict[str, Any]]:
    """Train.

    Args:
        config: Of the run.
        console: Where it is shown.
        resume: None for a new run, a run's folder, or an empty string for the newest of that name.
        fork: None, or the folder of a run or checkpoint that a new run starts from.
        begun: `time.perf_counter()` at the command's start.

    Returns:
        Whether all steps were made, and the summary.

    Raises:
        UserError: Something the user gave is wrong; no model was loaded.
    """
    laps = Laps(begun)
    # Named before anything is loaded: settings that contradict each other.
    make_objective(config)
    make_reward_policy(config)
    console.phase("checking the data")
    inputs = load_inputs(config)
    config = resolve_duration(config, num_problems=inputs.num_train_problems)
    console.expect_steps(config.steps)
    start = find_start(config, resume=resume, fork=fork, warn=console.line)
    laps.lap("data")
    console.phase("starting Ray")
    with running_ray(config, inputs) as prepared:
        start = note_device(start, prepared.device)
        # Before there is a folder, so that a run that cannot begin leaves none.
        placement = reserve_placement(config, prepared.device, with_learner=True)
        console.phase("fetching the model")
        fetch_to_nodes(prepared.inputs.model, placement.node_ids, console.line)
        for line in describe(config, prepared):
            console.line(line)
        placed = make_placed_parts(config, with_learner=True)
        console.line(f"placement  {describe_placement(placement.plan, placed, list_nodes())}")
        transport = find_transport(config, placement)
        if held := describe_gpu(config, prepared.inputs.model, placement.plan, transport):
            console.line(f"memory     {held}")
        directory = (start and start.directory) or make_folder(config, start)
        console.line(f"folder     {directory.path}")
        laps.lap("Ray, prompts and model")
        plain = config.model_dump(mode="json")
        with (
            directory.hold(),
            open_trackers(config.report_to, directory.path, plain) as trackers,
        ):
            if start is not None and start.changes:
                keep_changes(config, start, directory, say=console.line)
            complete, summary = _train(
                config,
                prepared,
                placement=placement,
                console=console,
                directory=directory,
                start=start,
                trackers=trackers,
                laps=laps,
            )
    _say_goodbye(console, directory, complete)
    return complete, summary


def _train(
    config: RunConfig,
    prepared: Prepared,
    *,
    placement: PlacementHolder,
    console: Console,
    directory: RunDirectory,
    start: Start | None,
    trackers: Sequence[Tracker],
    laps: Laps,
) -> tuple[bool, dict[str, Any]]:
    timeline = Timeline(on_phase=console.phase)
    incidents = IncidentLog(
        write=lambda row: directory.append_line("incidents.jsonl", row), say=console.line
    )
    with _running(
        config,
        prepared,
        placement,
        lap=laps.lap,
        console=console,
        note=incidents.note,
        timeline=timeline,
    ) as machinery:
        assert machinery.learner is not None
        if start is None or start.directory is None:
            write_environment(directory, config, machinery.pool.wait_ready()[0])
        publisher = make_publisher(config, prepared, machinery)
        learner = make_turns(config, machinery, publisher)
        probe = _choose_probe(prepared)
        progress = set_off(
            machinery.learner,
            publisher,
            start,
            directory,
            probe,
            transport=machinery.transport,
            say=console.line,
        )
        laps.lap("weights proved")
        recorder = RunRecorder(
            directory=directory,
            console=console,
            seed=config.seed,
            trackers=trackers,
            laps=laps,
            incidents=incidents,
            keep_rollouts=config.keep_rollouts,
            compress_rollouts=config.compress_rollouts,
        )
        skips = SkipGuard(directory.write_json, max_in_a_row=config.max_non_finite_steps)
        ledger = PromptLedger(make_objective(config).advantage_estimator)
        with StopSignal(console.line) as stop:
            source = make_source(
                config,
                prepared,
                machinery,
                ledger=ledger,
                timeline=timeline,
                check_stop=stop.check,
            )
            stateful = {"skips": skips, "ledger": ledger, "source": source}
            if start is not None:
                # What was sampled ahead was sampled as the options then said, so a fork leaves it.
                left = () if start.directory else ("source",)
                restore_parts(
                    start.checkpoint, {n: part for n, part in stateful.items() if n not in left}
                )
            checkpointer = RunCheckpointer(
                directory.checkpoints,
                machinery.learner,
                keep_last=config.keep_last,
                note=incidents.note,
                parts=stateful,
                best_metric=config.metric_for_best_model,
                best_value=directory.find_best(config.metric_for_best_model or "", progress.step),
                settle_record=recorder.settle,
            )
            parts = make_parts(
                config,
                prepared,
                machinery,
                learner=learner,
                publisher=publisher,
                recorder=recorder,
                checkpointer=checkpointer,
                recovery=make_recovery(
                    config,
                    learner,
                    publisher=publisher,
                    checkpointer=checkpointer,
                    ledger=ledger,
                    directory=directory,
                    probe=probe,
                    note=incidents.note,
                    warn=console.line,
                ),
                skips=skips,
                ledger=ledger,
                source=source,
                timeline=timeline,
                evaluate_first=config.eval_before_train
                and (progress.step == 0 or (start is not None and start.directory is None)),
                check_stop=stop.check,
            )
            try:
                complete = train(parts, progress)
            finally:
                # Whatever ends the run, the checkpoint that it was writing is worth having.
                checkpointer.settle()
            checkpointer.finish()
            directory.write_json(LEDGER_FILE, ledger.state())
        return complete, recorder.close(complete=complete)


@contextmanager
def _running(
    config: RunConfig,
    prepared: Prepared,
    placement: PlacementHolder,
    *,
    lap: Callable[[str], None],
    console: Console,
    note: NoteIncident,
    timeline: Timeline,
) -> Iterator[Machinery]:
    machinery = Machinery(
        config,
        prepared,
        with_learner=True,
        note=note,
        timeline=timeline,
        placement=placement,
    )
    try:
        console.phase("starting")
        machinery.start(lap)
        yield machinery
    except (RolloutError, LearnerError, FleetError, InvariantBroken, DiskFull) as error:
        raise RunFailed(
            f"{error} (--debug shows where; a checkpoint that was written can be gone on from with "
            "--resume)"
        ) from error
    finally:
        console.phase("stopping")
        machinery.close()


def _choose_probe(prepared: Prepared) -> tuple[int, ...]:
    """A text that engines and learner can be compared on before there is any completion."""
    longest = max(prepared.prompts.values(), key=len)
    return longest if len(longest) > 1 else longest * 2


def _say_goodbye(console: Console, directory: RunDirectory, complete: bool) -> None:
    if complete:
        console.line(f"Done. Policy, metrics and rollouts are in {directory.path}")
    else:
        console.line(f"Stopped. Go on with the same command and: --resume {directory.path}")
