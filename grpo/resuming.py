"""Finds the run to go on with, and puts its parts back where they were."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from grpo.checkpointer import Stateful
from grpo.checkpoints import MANIFEST, latest_checkpoint, read_state, verify_checkpoint
from grpo.config.schema import RunConfig
from grpo.protocols import Progress
from grpo.run_directory import RunDirectory
from verifiers.errors import UserError

# What a run that was forked keeps of where it came from.
FORKED_FROM = "forked_from.json"

# What may differ between a run and its continuation; anything else would make it another run.
_FREE = frozenset(
    {
        "run_name", "output_dir", "steps", "save_steps", "keep_last", "metric_for_best_model",
        "eval_steps", "report_to", "eval_before_train", "rollout", "learner", "verification", "ray",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where a run begins that does not begin with the bare model.

    Attributes:
        checkpoint: What it begins with.
        directory: The folder of the run that it goes on with; None where it is a new run.
    """

    checkpoint: Path
    directory: RunDirectory | None = None


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
        directory, checkpoint = find_run(config, resume, warn)
        return Start(checkpoint=checkpoint, directory=directory)
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


def find_run(
    config: RunConfig, given: str, warn: Callable[[str], None]
) -> tuple[RunDirectory, Path]:
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
    _check_same_run(config, path / "config.yaml")
    checkpoint = latest_checkpoint(directory.checkpoints, warn)
    if checkpoint is None:
        raise UserError(
            f"--resume {path}: the run has no whole checkpoint to go on from. Start it anew "
            f"without "
            "--resume, with save_steps=N to have a checkpoint every N steps."
        )
    return directory, checkpoint


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


def _check_same_run(config: RunConfig, file: Path) -> None:
    old = yaml.safe_load(file.read_text(encoding="utf-8"))
    new = config.model_dump(mode="json")
    for name in sorted((set(old) | set(new)) - _FREE):
        if old.get(name) != new.get(name):
            raise UserError(
                f"--resume: {name} is {_show(new.get(name))} now, but {_show(old.get(name))} in "
                f"{file}. A run goes on with the configuration it was started with; set it back, "
                f"or "
                "start a new run."
            )


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


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
