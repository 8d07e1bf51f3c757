"""All ranks of the learner, seen from the driver."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from grpo.learner.answers import collect_answers, read_answer
from grpo.learner.options import LearnerOptions
from grpo.learner.report import UpdateReport
from grpo.learner.watch import CONCURRENCY_GROUP, WRITING
from grpo.rollout.ipc import merge_exports
from grpo.rollout.weights import Transport, WeightPayload
from grpo.values import Batch, TrainSample
from verifiers.errors import UserError

_AHEAD = "learning from the first samples of a step"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankResources:
    """What one rank takes.

    Attributes:
        num_cpus: Cores that Ray sets aside for it.
        num_gpus: Devices.
        num_threads: Threads torch computes with.
    """

    num_cpus: float = 1
    num_gpus: float = 0
    num_threads: int = 1


class LearnerGroup:
    """The learner: one Ray actor for each rank, in one placement group.

    A failure of any rank ends the call at once, with its cause by name; the other ranks may then
    wait for ever for the failed one, so the group can only be restarted or closed.

    Args:
        options: What to train, and how.
        world_size: Number of ranks.
        resources: What each of them takes.
        placement: Bundles to place the ranks in, rank i into bundle i; None makes a placement group
            of its own.
        transport: How weights travel to the engines.
        num_sharing: By CUDA IPC: ranks, from the first, whose GPU is an engine's too.
        stall_timeout_s: Longest time in which no rank may get anything done.

    Example:
        >>> group = LearnerGroup(options)  # doctest: +SKIP
        >>> group.start()  # returns at once; build the engines meanwhile
        >>> group.wait_ready(timeout_s=120)
        >>> report = group.update(batch)
        >>> payload = group.publish(version=1)
    """

    def __init__(
        self,
        options: LearnerOptions,
        *,
        world_size: int = 1,
        resources: RankResources = RankResources(),
        placement: PlacementGroup | None = None,
        transport: Transport = "object",
        num_sharing: int = 1,
        stall_timeout_s: float = 1800.0,
    ) -> None:
        if world_size < 1:
            raise UserError(f"learner world_size={world_size} must be at least 1")
        self.options = options
        self.world_size = world_size
        self._resources = resources
        self._placement = placement
        self._owned: PlacementGroup | None = None
        self._transport: Transport = transport
        self._num_sharing = num_sharing
        self._stall_timeout_s = stall_timeout_s
        self._actors: list[Any] = []
        self._starting: list[Any] = []
        self._takes_head_start = False
        # For each call of `learn_ahead` that goes on, every rank's answer to come.
        self._ahead: list[list[Any]] = []

    @property
    def head_start_tokens(self) -> int | None:
        """How many tokens fill a micro-batch on every rank; None if a batch must be whole."""
        if not self._takes_head_start:
            return None
        return self.options.max_tokens_per_microbatch * self.world_size

    def start(self) -> None:
        """Start the processes and have them load the model; does not wait for it."""
        assert not self._actors, "start() is called once"
        self._actors = [self._spawn(rank) for rank in range(self.world_size)]
        meet = self.world_size > 1 or self.options.sharding == "fsdp2"
        address = self._actors[0].find_address.remote() if meet else None
        self._starting = [actor.setup.remote(address) for actor in self._actors]

    def wait_ready(self, timeout_s: float) -> list[dict[str, object]]:
        """Wait until every rank has loaded its model.

        Returns:
            What each rank runs with, for the log.

        Raises:
            LearnerDied: A process is gone.
            LearnerStalled: It took longer than `timeout_s`.
            UserError: The model or the options are wrong.
        """
        facts = self._collect(self._starting, "loading the model", timeout_s)
        self._takes_head_start = all(fact["takes_head_start"] for fact in facts)
        return facts

    def restart(self, timeout_s: float) -> None:
        """End what is left of the ranks and start them anew, with the policy they began with.

        Raises:
            LearnerDied: A process is gone.
            LearnerStalled: It took longer than `timeout_s`.
        """
        self.close()
        self.start()
        self.wait_ready(timeout_s)

    def learn_ahead(self, step: int, samples: Sequence[TrainSample]) -> None:
        """Begin to learn from the first samples of a batch, on all ranks; does not wait for it.

        Args:
            step: Whose batch it is.
            samples: The next whole groups, in the batch's order.
        """
        shared = ray.put(samples)
        self._ahead.append([actor.learn_ahead.remote(step, shared) for actor in self._actors])

    def find_learned_ahead(self) -> list[float]:
        """How long the calls of `learn_ahead` took that ended since the last look, in seconds.

        Raises:
            InvariantBroken: Something that must hold does not.
            LearnerDied: A process is gone.
        """
        seconds: list[float] = []
        for references in list(self._ahead):
            done, waiting = ray.wait(references, num_returns=len(references), timeout=0)
            found = [read_answer(r, references.index(r), _AHEAD) for r in done]
            if not waiting:
                self._ahead.remove(references)
                seconds.append(max(found))
        return seconds

    def update(self, batch: Batch, *, timeout_s: float | None = None) -> UpdateReport:
        """Learn from a batch, on all ranks.

        Raises:
            InvariantBroken: Something that must hold does not.
            LearnerDied: A process is gone.
            LearnerStalled: It took longer than `timeout_s`.
        """
        shared = ray.put(batch)
        ahead, self._ahead = [r for references in self._ahead for r in references], []
        references = [actor.update.remote(shared) for actor in self._actors]
        doing = f"updating in step {batch.step}"
        return self._collect([*ahead, *references], doing, timeout_s)[len(ahead)]

    def publish(self, version: int) -> WeightPayload:
        """Pack the weights as they are now, as the policy of this version.

        Args:
            version: What samples that this policy draws are marked with.

        Returns:
            A small value with a handle to the bytes, which stay readable until the next call.
        """
        references = [actor.set_version.remote(version) for actor in self._actors]
        keeping = self._num_sharing if self._transport == "ipc" else 1
        references += [
            actor.publish.remote(self._transport, keeps=rank < keeping)
            for rank, actor in enumerate(self._giving)
        ]
        payloads = self._collect(references, f"packing version {version}")[self.world_size :]
        kept = [payload for payload in payloads if payload is not None]
        return merge_exports(kept) if self._transport == "ipc" else kept[0]

    def score(
        self,
        completions: Sequence[tuple[Sequence[int], Sequence[int]]],
        *,
        temperature: float = 1.0,
    ) -> list[tuple[float, ...]]:
        """Compute every token's log-probability of fixed completions, in nats.

        Args:
            completions: Pairs of prompt ids and completion ids.
            temperature: What logits are divided by; engines score a probe at 1.
        """
        references = [actor.score.remote(completions, temperature) for actor in self._giving]
        return self._collect(references, "scoring a text")[0]

    def begin_save(self, folder: Path) -> None:
        """Copy every rank's state, and begin to write it into a folder that all of them can reach.

        Training can go on at once; `finish_save` waits for the files.
        """
        references = [actor.begin_save.remote(folder.absolute()) for actor in self._actors]
        self._collect(references, f"copying its state for {folder}")

    def finish_save(self) -> None:
        """Wait until every rank has written its part; to be called from any thread.

        Raises:
            LearnerFailed: One could not write it.
        """
        self._collect([a.finish_save.remote() for a in self._actors], "writing a checkpoint")

    def load(self, folder: Path) -> int:
        """Go on from a checkpoint.

        Returns:
            The version of the weights in it.

        Raises:
            UserError: It is of another model.
        """
        references = [actor.load.remote(folder.absolute()) for actor in self._actors]
        return self._collect(references, f"loading {folder}")[0]

    def close(self, *, timeout_s: float = 5.0) -> None:
        """End the processes and give their resources back.

        Harmless after a failure, and when called twice.
        """
        closing = [actor.close.remote() for actor in self._actors]
        if closing:
            ray.wait(closing, num_returns=len(closing), timeout=timeout_s)
        for actor in self._actors:
            ray.kill(actor)
        self._actors = []
        self._ahead = []
        if self._owned is not None:
            remove_placement_group(self._owned)
            self._owned = self._placement = None

    @property
    def _giving(self) -> list[Any]:
        """The ranks that have a part in giving weights away."""
        if self.options.sharding == "fsdp2":
            return self._actors
        return self._actors[: self._num_sharing if self._transport == "ipc" else 1]

    def _spawn(self, rank: int) -> Any:
        # torch and transformers take seconds to import, and the driver does not compute.
        from grpo.learner.rank import LearnerRank

        if self._placement is None:
            bundle = {"CPU": self._resources.num_cpus, "GPU": self._resources.num_gpus}
            bundles = [{k: v for k, v in bundle.items() if v}] * self.world_size
            self._owned = self._placement = placement_group(bundles, strategy="PACK")
        # Ray's type hints know the decorator only.
        make_remote: Any = ray.remote
        return (
            make_remote(concurrency_groups={CONCURRENCY_GROUP: 1, WRITING: 1})(LearnerRank)
            .options(
                num_cpus=self._resources.num_cpus,
                num_gpus=self._resources.num_gpus,
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    self._placement, placement_group_bundle_index=rank
                ),
                runtime_env={
                    "env_vars": {
                        "OMP_NUM_THREADS": str(self._resources.num_threads),
                        # Threads that spin while they wait take the cores of the engines and
                        # verifiers.
                        "OMP_WAIT_POLICY": "PASSIVE",
                    }
                },
            )
            .remote(self.options, rank, self.world_size)
        )

    def _collect(
        self, references: list[Any], doing: str, timeout_s: float | None = None
    ) -> list[Any]:
        return collect_answers(
            self._actors,
            references,
            doing,
            stall_timeout_s=self._stall_timeout_s,
            timeout_s=timeout_s or math.inf,
        )
