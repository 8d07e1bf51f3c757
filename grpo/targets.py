"""What can be evaluated: models, runs, checkpoints and adapters, each as a model to load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from grpo.adapters import ADAPTER_CONFIG, merge_adapter
from grpo.checkpoints import POLICY, latest_checkpoint, verify_checkpoint
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


def _make(model: Path, label: str, home: Path) -> Target:
    if (model / ADAPTER_CONFIG).is_file():
        model = merge_adapter(model)
    return Target(model=str(model), label=label, home=home)
