"""What of a rank a checkpoint keeps: taken, written and put back."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from grpo.checkpoints import LEARNER
from grpo.learner.adapters import is_adapter
from grpo.learner.host_buffers import HostBuffers
from grpo.learner.reference import PolicyCopy
from grpo.learner.restoring import restore_optimizer, restore_policy, restore_reference
from grpo.learner.saving import capture_random_state, restore_random_state
from grpo.learner.served import gather_weights, lay_out_weights
from grpo.learner.snapshot import Snapshot, copy_optimizer, copy_whole, write_snapshot

if TYPE_CHECKING:
    from grpo.learner.learner import Learner

WEIGHTS = "weights"


class LearnerState:
    """Saves a learner's rank and restores it.

    Args:
        learner: The rank.
    """

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self._writer = ThreadPoolExecutor(max_workers=1)
        self._saving: Future[None] | None = None
        self._buffers = HostBuffers()

    def reserve(self) -> None:
        """Set aside the memory that a save copies to, while the other parts of a run start."""
        learner = self._learner
        if not learner.accelerator.is_main_process:
            return
        pinned = learner.device.type == "cuda"
        forms = [
            (f"{WEIGHTS}/{name}", weight.shape)
            for name, weight in lay_out_weights(learner.policy.model, "float32")
        ]
        if learner.options.optim == "adamw_torch":
            forms += [
                (f"{name}/{moment}", weight.shape)
                for name, weight in learner.policy.named_parameters()
                if weight.requires_grad
                for moment in ("exp_avg", "exp_avg_sq")
            ]
        for name, shape in forms:
            self._buffers.reserve(name, shape, torch.float32, pinned=pinned)

    def begin_save(self, folder: Path) -> None:
        """Copy this rank's state, and write its part of a checkpoint while training goes on.

        Args:
            folder: As `grpo.checkpoints.write_checkpoint` gives it, the same for every rank.
        """
        self.finish_save()
        self._saving = self._writer.submit(
            write_snapshot,
            self._take_snapshot(),
            folder,
            policy=self._learner.policy,
            source=self._learner.options.model,
            rank=self._learner.accelerator.process_index,
        )

    def finish_save(self) -> None:
        """Wait until this rank's part is written, if it is not.

        Raises:
            OSError: It could not be written.
        """
        saving, self._saving = self._saving, None
        if saving is not None:
            saving.result()

    def load(self, folder: Path) -> None:
        """Go on from a checkpoint, exactly on the same number of ranks.

        Every setting of the optimizer is the options', not the checkpoint's. A rank that the
        checkpoint knows nothing of keeps the random state it was started with.

        Args:
            folder: A whole checkpoint.

        Raises:
            UserError: If it is of another model, or trained other weights.
        """
        learner = self._learner
        restore_policy(learner.policy, folder)
        own = folder / LEARNER
        # Mapped, not read: a rank takes its share of each moment, and no rank needs all of them.
        training = torch.load(
            own / "optimizer.pt", map_location="cpu", weights_only=True, mmap=True
        )
        restore_optimizer(learner.policy, learner.optimizer, training["optimizer"], folder)
        learner.updates_done = training["updates_done"]
        learner.policy_version = training["policy_version"]
        learner.coefficients.restore(training["coefficients"])
        if isinstance(learner.reference, PolicyCopy) and (own / "reference.safetensors").is_file():
            restore_reference(learner.reference.policy, folder)
        random_state = own / f"random-{learner.accelerator.process_index}.pt"
        if random_state.is_file():
            restore_random_state(torch.load(random_state, weights_only=True))

    def _take_snapshot(self) -> Snapshot:
        learner = self._learner
        first = learner.accelerator.is_main_process
        random_state = capture_random_state()
        if not first and learner.options.sharding != "fsdp2":
            return Snapshot(random=random_state)
        model, reference = learner.policy.model, learner.reference
        adapter = ((n, weight) for n, weight in model.state_dict().items() if is_adapter(n))
        changing = (
            reference.policy.named_parameters()
            if isinstance(reference, PolicyCopy) and reference.changes
            else ()
        )
        snapshot = Snapshot(
            random=random_state,
            weights=copy_whole(
                gather_weights(model, "float32"), self._buffers, WEIGHTS, keep=first
            ),
            adapter=copy_whole(adapter, self._buffers, "adapter", keep=first),
            reference=copy_whole(changing, self._buffers, "reference", keep=first),
            training={
                "optimizer": copy_optimizer(
                    learner.policy, learner.optimizer, self._buffers, keep=first
                ),
                "updates_done": learner.updates_done,
                "policy_version": learner.policy_version,
                "coefficients": learner.coefficients.state(),
            },
        )
        return snapshot if first else Snapshot(random=random_state)
