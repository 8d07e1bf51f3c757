"""Finds the run to go on with, and puts its parts back where they were."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from grpo.checkpointer import Stateful
from grpo.checkpoints import MANIFEST, latest_checkpoint, read_state, verify_checkpoint
from grpo.config import RunConfig, load_config
from grpo.protocols import Progress
from grpo.run_directory import RunDirectory
from verifiers.errors import UserError

# What a run that was forked keeps of where it came from.
FORKED_FROM = "forked_from.json"
# What a run runs on.
ENVIRONMENT = "environment.json"

# What may differ between a run and its continuation; anything else would make it another run.
_FREE = frozenset(
    {
        "run_name", "output_dir", "steps", "save_steps", "keep_last", "keep_rollouts",
        "compress_rollouts", "metric_for_best_model", "eval_steps", "eval_before_train",
        "evaluation", "report_to", "max_non_finite_steps", "max_unverified_steps",
        "max_tokens_per_microbatch", "start_timeout_s", "placement", "rollout", "learner",
        "invariants", "verification", "ray",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where a run begins that does not begin with the bare model.

    Attributes:
        checkpoint: What it begins with.
        directory: The folder of the run that it goes on with; None where it is a new run.
        changes: What is another now than in that run, options foremost: what each was, and is.
    """

    checkpoint: Path
    directory: RunDirectory | None = None
    changes: Mapping[str, tuple[Any, Any]] = field(default_factory=dict[str, tuple[Any, Any]])


def find_start(
    config: RunConfig, *, resume: str | None, fork: str | None, warn: Callable[[str], None]
) -> Start | None:
    """Find the checkpoint that the user asked to begin with, if they did.

    Args:
        config: Of the run.
        resume: None, a run's folder, or an empty string for the newest run of `config.run_name`.
        fork: None, a run's folder or a checkpoint's.
        warn: Told of damaged checkpoints that are passed over.

    Raises:
        UserError: There is none, or it does not fit the configuration.
    """
    if resume is not None and fork is not None:
        raise UserError(
            "--resume goes on with a run and --fork starts a new one from it: give one of the two."
        )
    if resume is not None:
        return find_run(config, resume, warn)
    if fork is None:
        return None
    checkpoint = _find_fork(Path(fork).expanduser(), warn)
    step = read_progress(checkpoint).step
    if step >= config.steps:
        raise UserError(
            f"--fork {fork}: the checkpoint is of step {step}, and steps={config.steps} leaves "
            "nothing to train; steps counts from the first run's start, so raise it."
        )
    return Start(checkpoint=checkpoint)


def _find_fork(path: Path, warn: Callable[[str], None]) -> Path:
    if (path / MANIFEST).is_file():
        verify_checkpoint(path)
        return path.resolve()
    checkpoint = latest_checkpoint(RunDirectory(path).checkpoints, warn)
    if checkpoint is None:
        raise UserError(
            f"--fork {path}: this is neither a checkpoint (a folder with {MANIFEST}) nor the "
            "folder of a run that has a whole one."
        )
    return checkpoint.resolve()


def find_run(config: RunConfig, given: str, warn: Callable[[str], None]) -> Start:
    """Find a run's folder and its newest whole checkpoint.

    Args:
        config: Of the continuation.
        given: The folder, or an empty string for the newest run of `config.run_name`.
        warn: Told of damaged checkpoints that are passed over.

    Raises:
        UserError: There is no such run, no whole checkpoint, or the configurations disagree.
    """
    path = Path(given).expanduser() if given else _newest_run(config)
    directory = RunDirectory(path)
    if not (path / "config.yaml").is_file():
        raise UserError(f"--resume {path}: this is not a run's folder, it has no config.yaml.")
    changes = _find_changes(config, path / "config.yaml")
    checkpoint = latest_checkpoint(directory.checkpoints, warn)
    if checkpoint is None:
        raise UserError(
            f"--resume {path}: the run has no whole checkpoint to go on from. Start it anew "
            "without --resume, with save_steps=N to have a checkpoint every N steps."
        )
    return Start(checkpoint=checkpoint, directory=directory, changes=changes)


def _newest_run(config: RunConfig) -> Path:
    base = Path(config.output_dir).expanduser()
    runs = [base / config.run_name, *base.glob(f"{config.run_name}-[0-9]*")]
    runs = [run for run in runs if (run / "config.yaml").is_file()]
    if not runs:
        raise UserError(
            f"--resume: there is no run called {config.run_name!r} in {base}. Name its folder "
            "(--resume FOLDER), or set output_dir and run_name as they were."
        )
    return max(runs, key=lambda run: (run / "config.yaml").stat().st_mtime)


def _find_changes(config: RunConfig, file: Path) -> dict[str, tuple[Any, Any]]:
    """What differs from the run's own configuration, all of which may."""
    # Read as a configuration, so that options which are newer than the run have their defaults.
    kept, _ = load_config(str(file.absolute()))
    old, new = kept.model_dump(mode="json"), config.model_dump(mode="json")
    changes = {name: (was, now) for name, was, now in _compare(old, new)}
    for name, (was, now) in changes.items():
        if name.partition(".")[0] not in _FREE:
            raise UserError(
                f"--resume: {name} is {_show(now)} now, but {_show(was)} in {file}. A run goes on "
                "with the configuration it was started with; set it back, or start a new run from "
                f"its checkpoint with --fork {file.parent}."
            )
    return changes


def _compare(
    old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    for name in sorted({*old, *new}):
        was, now = old.get(name), new.get(name)
        if isinstance(was, dict) and isinstance(now, dict):
            yield from _compare(was, now, f"{prefix}{name}.")
        elif was != now:
            yield f"{prefix}{name}", was, now


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def note_device(start: Start | None, device: str | None) -> Start | None:
    """The same start; what a run computes on is among the changes, if it is another now.

    It is no option, but follows from the machines, and `dtype: auto` from it.
    """
    if start is None or start.directory is None:
        return start
    file = start.directory.path / ENVIRONMENT
    facts = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    was = facts.get("engine", {}).get("device", device)  # a run that ended early has none
    if was == device:
        return start
    return replace(start, changes={**start.changes, "device": (was, device)})


def keep_changes(
    config: RunConfig, start: Start, directory: RunDirectory, *, say: Callable[[str], None]
) -> None:
    """Write the configuration that a resumed run goes on with, and keep what was another before."""
    for name, (was, now) in start.changes.items():
        say(f"changed    {name}: {_show(was)} before, {_show(now)} now")
    step = read_progress(start.checkpoint).step
    directory.append_line("resumed.jsonl", {"step": step, "changes": start.changes})
    directory.write_config(config)


def read_progress(checkpoint: Path) -> Progress:
    """Where a checkpoint stands."""
    state = read_state(checkpoint)
    return Progress(
        step=state["step"],
        policy_version=state["policy_version"],
        num_drawn=state["num_drawn"],
    )


def restore_parts(checkpoint: Path, parts: Mapping[str, Stateful]) -> None:
    """Give the parts of the loop the state back that the checkpoint has of them."""
    for name, state in read_state(checkpoint).get("parts", {}).items():
        if name in parts:
            parts[name].restore(state)
