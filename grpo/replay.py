"""Makes one update of a finished run again, from what the run left on disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from grpo.assemble import assemble_batch
from grpo.checkpoints import DamagedCheckpoint, list_checkpoints, verify_checkpoint
from grpo.config.schema import RunConfig
from grpo.gather import count_surplus
from grpo.resuming import FORKED_FROM, read_progress
from grpo.run_directory import RunDirectory
from grpo.values import Batch
from grpo.wiring.learner import load_learner
from grpo.wiring.stages import make_batch_policy
from verifiers.errors import UserError

if TYPE_CHECKING:
    from grpo.learner.contributions import Contribution
    from grpo.learner.learner import Learner

# Loss and gradient norm that are made again differ from those of the run by no more than this,
# where the run had one rank.
TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """An update that was made again.

    Attributes:
        step: Its step.
        begun_from: The weights that were there to begin with: a checkpoint, or the model.
        num_replayed: Updates that were made again to get from there to the step's own weights.
        metrics: What the update measured.
        logged: What the run had written of it.
        skipped: Why it was not applied; None when it was.
        contributions: For each mini-batch, its samples' parts.
    """

    step: int
    begun_from: str
    num_replayed: int
    metrics: Mapping[str, float]
    logged: Mapping[str, Any]
    skipped: str | None
    contributions: Sequence[Sequence[Contribution]]

    @property
    def loss_difference(self) -> float:
        """How far the loss is from the logged one."""
        return abs(self.metrics["loss"] - self.logged["loss"])


def replay_step(run: Path, step: int, *, say: Callable[[str], None]) -> Replay:
    """Rebuild a step's weights and batch, and make its update again.

    The weights are those of the newest whole checkpoint before the step, or of the model that the
    run began with; from there every update up to the step is made again, from its stored rollouts.

    Args:
        run: The run's folder.
        step: Which step, from 1.
        say: Told of checkpoints that are passed over, and of updates that come out differently.

    Raises:
        UserError: It is no run's folder, it has no such step, or something of it is missing.
    """
    directory = RunDirectory(run)
    config = _read_config(run)
    logged = {row["step"]: row for row in directory.read_lines("metrics.jsonl")}
    if step not in logged:
        steps = f"1 to {max(logged)}" if logged else "none yet"
        raise UserError(f"{run} has no step {step}; its metrics.jsonl has {steps}.")
    if "loss" not in logged[step]:
        raise UserError(
            f"Step {step} of {run} made no update ({logged[step].get('skipped', 'no reason')}), so "
            "there is none to replay."
        )
    checkpoint = _find_checkpoint(directory, step, say)
    learner = load_learner(config)
    before = 0
    if checkpoint is not None:
        learner.state.load(checkpoint)
        before = read_progress(checkpoint).step
    num_replayed = 0
    for earlier in range(before + 1, step):
        batch = _read_batch(directory, config, earlier)
        if not batch.num_loss_tokens:
            continue
        num_replayed += 1
        loss = _update(learner, batch)[0].get("loss")
        expected = logged.get(earlier, {}).get("loss")
        if loss is not None and expected is not None and abs(loss - expected) > TOLERANCE:
            say(f"step {earlier}: the loss is {loss:.9g} now and was {expected:.9g} in the run")
    from grpo.learner.contributions import explain_update

    batch = _read_batch(directory, config, step)
    contributions = explain_update(learner, batch)
    metrics, skipped = _update(learner, batch)
    return Replay(
        step=step,
        begun_from=str(checkpoint or config.model),
        num_replayed=num_replayed,
        metrics=metrics,
        logged=logged[step],
        skipped=skipped,
        contributions=contributions,
    )


def _update(learner: Learner, batch: Batch) -> tuple[Mapping[str, float], str | None]:
    report = learner.update(batch)
    if report.skipped is None:
        learner.policy_version += 1
    return report.metrics, report.skipped


def _read_config(run: Path) -> RunConfig:
    file = run / "config.yaml"
    if not file.is_file():
        raise UserError(f"{run} is not a run's folder: it has no config.yaml.")
    return RunConfig.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))


def _find_checkpoint(directory: RunDirectory, step: int, say: Callable[[str], None]) -> Path | None:
    """The newest whole checkpoint before a step, or the one that the run was forked from."""
    for path in reversed(list_checkpoints(directory.checkpoints)):
        if read_progress(path).step >= step:
            continue
        try:
            verify_checkpoint(path)
        except DamagedCheckpoint as error:
            say(f"Skipping a checkpoint: {error}")
        else:
            return path
    origin = directory.path / FORKED_FROM
    if not origin.is_file():
        return None
    checkpoint = Path(json.loads(origin.read_text(encoding="utf-8"))["checkpoint"])
    verify_checkpoint(checkpoint)
    return checkpoint


def _read_batch(directory: RunDirectory, config: RunConfig, step: int) -> Batch:
    groups = directory.read_rollouts(step)
    policy = make_batch_policy(config)
    if config.dynamic_sampling == "replace":
        surplus = count_surplus(groups, config.prompts_per_step, policy.advantage_estimator)
        groups = groups[: len(groups) - surplus]
    batch, _ = assemble_batch(groups, step=step, policy=policy)
    return batch
