"""Where a run's metrics go besides its folder: TensorBoard, Weights & Biases, Prometheus."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from uuid import uuid4

import yaml

from grpo.prometheus import PrometheusEndpoint
from grpo.values import ScoredGroup
from verifiers.errors import UserError
from verifiers.problem import Problem

# Of each step; all of them are in the run's folder.
NUM_SHOWN = 32
_COLUMNS = ("step", "problem", "member", "prompt", "completion", "status", "reason", "reward")


class Tracker(Protocol):
    """Takes metrics by step."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add a step's metrics; a step may come twice, with other names."""
        ...

    def close(self) -> None:
        """Hand over what is waiting."""
        ...


@runtime_checkable
class CompletionTracker(Tracker, Protocol):
    """Takes completions as well."""

    def log_completions(self, step: int, groups: Sequence[ScoredGroup]) -> None:
        """Show some of a step's completions."""
        ...


class TensorBoard:
    """Event files in `tensorboard/` of the run's folder.

    Args:
        folder: The run's.
        config: Kept as text.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(log_dir=str(folder / "tensorboard"))
        self._writer.add_text("config", f"```\n{yaml.safe_dump(dict(config), sort_keys=False)}```")
        self._failed = False

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add a step's metrics.

        Raises:
            OSError: They cannot be written, and no later ones either.
        """
        try:
            for name, value in metrics.items():
                self._writer.add_scalar(name, value, step)
        except OSError:
            self._failed = True
            raise

    def close(self) -> None:
        """Write what is waiting."""
        # A writer that has failed raises the same again, and has nothing open.
        if not self._failed:
            self._writer.close()


class WeightsAndBiases:
    """A run of wandb: the project is `WANDB_PROJECT`, or verigrad; wandb reads its other variables.

    A resumed run goes on in the same run of wandb, whose id is in `wandb_id` of the run's folder.
    Besides metrics it gets a table of each step's first completions.

    Args:
        folder: The run's.
        config: Kept with the run.

    Raises:
        UserError: wandb cannot start: no key, no such project.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self._wandb = wandb = import_module("wandb")
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "verigrad"),
                name=folder.name,
                id=_keep_id(folder / "wandb_id"),
                dir=str(folder),
                config=dict(config),
                resume="allow",
            )
        except wandb.errors.Error as error:
            raise UserError(
                f"report_to names wandb, but it does not start: {error}. Run `wandb login`, set "
                "WANDB_API_KEY, or set WANDB_MODE=offline to send nothing for now."
            ) from None
        # wandb's own counter only rises, and evaluations come at a step that was already logged.
        self._run.define_metric("*", step_metric="step")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add a step's metrics."""
        self._run.log({"step": step, **metrics})

    def log_completions(self, step: int, groups: Sequence[ScoredGroup]) -> None:
        """Add a table of a step's first completions with what was found out about each."""
        rows = [
            [
                step,
                group.problem.id,
                member.rollout.member,
                _show_prompt(group.problem),
                member.rollout.text,
                member.verdict.status.value,
                member.verdict.reason.value,
                member.reward,
            ]
            for group in groups
            for member in group.members
        ]
        table = self._wandb.Table(columns=list(_COLUMNS), data=rows[:NUM_SHOWN])
        self._run.log({"step": step, "completions": table})

    def close(self) -> None:
        """Wait until everything is sent."""
        self._run.finish()


TRACKERS: Mapping[str, Callable[[Path, Mapping[str, Any]], Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "prometheus": PrometheusEndpoint,
}


def check_trackers(names: Sequence[str]) -> None:
    """Check that what the trackers need is installed.

    Raises:
        UserError: It is not.
    """
    if "wandb" in names and find_spec("wandb") is None:
        raise UserError(
            "report_to names wandb, which is not installed: run `pip install 'verigrad[wandb]'`, "
            "or take it out of report_to."
        )


@contextmanager
def open_trackers(
    names: Sequence[str], folder: Path, config: Mapping[str, Any]
) -> Iterator[tuple[Tracker, ...]]:
    """The trackers of a run, closed at the end.

    Args:
        names: Keys of `TRACKERS`.
        folder: The run's.
        config: The run's, as plain values.

    Raises:
        UserError: One cannot start.
    """
    with ExitStack() as opened:
        trackers: list[Tracker] = []
        for name in names:
            tracker = TRACKERS[name](folder, config)
            opened.callback(tracker.close)
            trackers.append(tracker)
        yield tuple(trackers)


def _show_prompt(problem: Problem) -> str:
    prompt = problem.prompt
    return prompt if isinstance(prompt, str) else "\n\n".join(one["content"] for one in prompt)


def _keep_id(file: Path) -> str:
    if not file.exists():
        file.write_text(uuid4().hex[:12], encoding="ascii")
    return file.read_text(encoding="ascii")
