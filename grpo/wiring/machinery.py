"""The processes of a run, started and stopped together."""

from __future__ import annotations

from collections.abc import Callable

from grpo.config.schema import RunConfig
from grpo.placement import PlacementHolder
from grpo.preparation import Prepared
from grpo.rollout.options import available_cores
from grpo.rollout.pool import RolloutPool
from grpo.rollout.weights import Transport
from grpo.timing import Timeline
from grpo.wiring.engines import make_engine_options
from grpo.wiring.learner import make_learner
from grpo.wiring.placement import find_transport, reserve_placement
from sandbox.options import MAX_DEFAULT_SIZE
from verifiers.fleet import VerifierFleet
from verifiers.incident import NoteIncident


class Machinery:
    """The processes of a run on a Ray that is up: engines, verifiers and, for training, a learner.

    They are started together, since each spends much of its start waiting; but on GPUs that they
    share, the learner comes after the engines.

    Args:
        config: The run's.
        prepared: Its checked inputs.
        with_learner: False for an evaluation.
        note: Told what was lost.
        timeline: Told who worked when.
        placement: What was set aside for them; None does so now.

    Raises:
        UserError: The cluster does not hold them.
    """

    def __init__(
        self,
        config: RunConfig,
        prepared: Prepared,
        *,
        with_learner: bool,
        note: NoteIncident,
        timeline: Timeline,
        placement: PlacementHolder | None = None,
    ) -> None:
        self._start_timeout_s = config.start_timeout_s
        self.placement = placement or reserve_placement(
            config, prepared.device, with_learner=with_learner
        )
        plan = self.placement.plan
        self.transport: Transport = (
            find_transport(config, self.placement) if with_learner else "shared_memory"
        )
        self.pool = RolloutPool(
            make_engine_options(config, prepared, plan, self.transport, with_learner=with_learner),
            num_engines=config.rollout.num_engines,
            start_timeout_s=config.start_timeout_s,
            stall_timeout_s=config.rollout.stall_timeout_s,
            push_timeout_s=config.rollout.stall_timeout_s,
            max_restarts=config.rollout.max_restarts,
            note=note,
            timeline=timeline,
            actor_options=self.placement.engine_options,
            has_place=self.placement.has_engine_place,
        )
        self.fleet = make_fleet(config, prepared, note)
        self.learner = (
            make_learner(config, prepared, self.placement, self.transport) if with_learner else None
        )

    def start(self, lap: Callable[[str], None]) -> None:
        """Start everything and wait until it is ready.

        Args:
            lap: Told the name of each part once it is there.
        """
        self.pool.start()
        self.fleet.start()
        # vLLM sizes its KV cache by what the GPU has free before and after it tried the model: a
        # learner that loads onto it meanwhile makes the cache another one each time, or none.
        engines_first = self.placement.plan.takes_turns
        if engines_first:
            self._await_engines(lap)
        if self.learner is not None:
            self.learner.start()
        self.fleet.wait_ready(self._start_timeout_s)
        lap("verifiers")
        if self.learner is not None:
            self.learner.wait_ready(self._start_timeout_s)
            lap("learner")
        if not engines_first:
            self._await_engines(lap)

    def _await_engines(self, lap: Callable[[str], None]) -> None:
        self.pool.wait_ready()
        lap("engines")

    def close(self) -> None:
        """Stop everything that was started; safe at any point of the start."""
        for part in (self.fleet, self.pool, self.learner):
            if part is not None:
                part.close()
        self.placement.release()


def make_fleet(config: RunConfig, prepared: Prepared, note: NoteIncident) -> VerifierFleet:
    """The verifiers of a run, not started."""
    return VerifierFleet(
        specs=prepared.inputs.verifier_options,
        num_workers=config.verification.num_workers,
        max_in_flight=config.verification.max_in_flight,
        stall_timeout_s=config.verification.stall_timeout_s,
        note=note,
        # One program waits while another runs, so that no container is ever idle.
        node_threads=2 * (config.sandbox.pool_size or min(available_cores(), MAX_DEFAULT_SIZE)),
    )
