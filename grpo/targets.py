"""What can be evaluated: models, runs, checkpoints and adapters, each as a model to load."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo.adapters import ADAPTER_CONFIG, merge_adapter
from grpo.checkpoints import POLICY, latest_checkpoint, verify_checkpoint
from grpo.config import RunConfig, load_config
from verifiers.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A model to evaluate.

    Attributes:
        model: What a configuration's `model` would say.
        label: A name for its folder of results.
        home: Where evaluations of it belong.
    """

    model: str
    label: str
    home: Path


def find_target(name: str, warn: Callable[[str], None]) -> Target:
    """Find what a target stands for.

    Args:
        name: A run's folder, a checkpoint's, an adapter's, a model's, or a hub id.
        warn: Told of damaged checkpoints that are passed over.

    Raises:
        UserError: A run has no checkpoint, or an adapter cannot be merged.
    """
    folder = Path(name).expanduser()
    if (folder / "checkpoints").is_dir():
        checkpoint = latest_checkpoint(folder / "checkpoints", warn=warn)
        if checkpoint is None:
            raise UserError(f"The run's folder {folder} has no whole checkpoint to evaluate.")
        return _make(checkpoint / POLICY, checkpoint.name, folder / "evaluations")
    if (folder / POLICY).is_dir():
        verify_checkpoint(folder)
        return _make(folder / POLICY, folder.name, folder.parent.parent / "evaluations")
    if (folder / "config.yaml").is_file():
        raise UserError(f"The run's folder {folder} has no whole checkpoint to evaluate.")
    if (folder / ADAPTER_CONFIG).is_file():
        return _make(merge_adapter(folder), folder.name, Path("evaluations"))
    label = name.rstrip("/").replace(":", "-").split("/")[-1]
    return Target(model=name, label=label, home=Path("evaluations"))


def resolve_evaluation(
    source: str | Mapping[str, Any], overrides: Sequence[str], warn: Callable[[str], None]
) -> tuple[RunConfig, Path]:
    """What to evaluate, and where the scores belong.

    Args:
        source: A configuration's file, what would be in one, or a run's folder: its configuration
            and its newest checkpoint.
        overrides: As for `load_config`.
        warn: As for `find_target`.

    Raises:
        UserError: There is nothing to evaluate, or nothing to evaluate it on.
    """
    if isinstance(source, str) and Path(source).is_dir():
        target = find_target(source, warn)
        return load_target(str(Path(source) / "config.yaml"), target, overrides)
    config, _ = load_config(source, overrides)
    require_held_out(config)
    return config, Path(f"evaluations/{config.run_name}")


def load_target(file: str, target: Target, overrides: Sequence[str]) -> tuple[RunConfig, Path]:
    """A configuration for a target, and where the scores belong."""
    config, _ = load_config(file, [f"model={target.model}", *overrides])
    require_held_out(config)
    return config, target.home / target.label


def require_held_out(config: RunConfig) -> None:
    """See that a configuration has something to evaluate on.

    Raises:
        UserError: It has not.
    """
    if not config.evaluation.data:
        raise UserError(
            "There are no held-out sets: evaluation.data is empty. Name a recipe "
            "(evaluation.data=gsm8k; docs/data.md lists them) or a file."
        )


def _make(model: Path, label: str, home: Path) -> Target:
    if (model / ADAPTER_CONFIG).is_file():
        model = merge_adapter(model)
    return Target(model=str(model), label=label, home=home)
