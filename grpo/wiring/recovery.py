"""What puts weights into the engines, and what brings a lost learner back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from grpo.checkpointer import RunCheckpointer
from grpo.config.schema import RunConfig
from grpo.learner.invariants import sampler_bound
from grpo.ledger import PromptLedger
from grpo.publisher import ProvingPublisher
from grpo.recovery import LearnerRecovery
from grpo.run_directory import RunDirectory
from grpo.wiring.learner import learner_precision
from grpo.wiring.machinery import START_TIMEOUT_S, Machinery
from verifiers.incident import NoteIncident


def make_recovery(
    config: RunConfig,
    machinery: Machinery,
    *,
    publisher: ProvingPublisher,
    checkpointer: RunCheckpointer,
    ledger: PromptLedger,
    directory: RunDirectory,
    probe: Sequence[int],
    note: NoteIncident,
    warn: Callable[[str], None],
) -> LearnerRecovery:
    """What is done when learner ranks die."""
    assert machinery.learner is not None
    return LearnerRecovery(
        learner=machinery.learner,
        ledger=ledger,
        publisher=publisher,
        directory=directory,
        probe=probe,
        max_restarts=config.learner.max_restarts,
        start_timeout_s=START_TIMEOUT_S,
        settle=checkpointer.settle,
        note=note,
        warn=warn,
    )


def make_publisher(config: RunConfig, machinery: Machinery) -> ProvingPublisher:
    """The proven push of weights."""
    assert machinery.learner is not None
    return ProvingPublisher(
        source=machinery.learner,
        engines=machinery.pool,
        max_difference=sampler_bound(
            learner_precision(config), config.invariants.max_logprob_difference
        ).mean,
    )
