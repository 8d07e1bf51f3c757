"""What puts weights into the engines, and what brings a lost learner back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from grpo.checkpointer import RunCheckpointer
from grpo.config.schema import RunConfig
from grpo.learner.guard import Guard
from grpo.learner.invariants import sampler_bound
from grpo.ledger import PromptLedger
from grpo.objective import samples_whole_distribution
from grpo.preparation import Prepared
from grpo.publisher import ProvingPublisher
from grpo.recovery import LearnerRecovery, Restartable
from grpo.run_directory import RunDirectory
from grpo.wiring.engines import make_sampling
from grpo.wiring.machinery import Machinery
from grpo.witness import SamplerWitness
from verifiers.incident import NoteIncident


def make_recovery(
    config: RunConfig,
    learner: Restartable,
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
    return LearnerRecovery(
        learner=learner,
        ledger=ledger,
        publisher=publisher,
        directory=directory,
        probe=probe,
        max_restarts=config.learner.max_restarts,
        start_timeout_s=config.start_timeout_s,
        settle=checkpointer.settle,
        note=note,
        warn=warn,
    )


def make_publisher(config: RunConfig, prepared: Prepared, machinery: Machinery) -> ProvingPublisher:
    """The proven push of weights."""
    assert machinery.learner is not None
    bound = sampler_bound(machinery.learner.options)
    witness = None
    # Without staleness every sample is of the learner's version, and the update checks them all.
    if config.max_staleness and samples_whole_distribution(config):
        witness = SamplerWitness(
            scorer=machinery.learner,
            engines=machinery.pool,
            sampling=make_sampling(config, prepared),
            bound=bound,
            guard=Guard(config.invariants.on_breach),
        )
    return ProvingPublisher(
        source=machinery.learner,
        engines=machinery.pool,
        bound=bound,
        witness=witness,
    )
