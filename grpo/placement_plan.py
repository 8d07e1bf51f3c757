"""Where engines and learner ranks go: the bundles to ask a cluster for, and who sits in which."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from grpo.rollout.options import Device
from verifiers.errors import UserError

Placement = Literal["colocated", "dedicated"]
Resources = Mapping[str, float]

# A bundle must hold something. On CPU parts that take turns on all cores set none aside.
NOMINAL_CPUS = 0.01
_NO_GPUS = (
    "See with `ray status` whether the nodes that have GPUs are up and offer them to Ray; for "
    "those that are added on demand, a training run waits if it says placement=dedicated or "
    "colocated. To compute on CPU, install `verigrad[cpu]`."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementPlan:
    """A placement that the cluster can hold.

    Attributes:
        placement: `colocated` has engine i and rank i in the same bundle.
        groups: What is set aside: bundles that Ray places together and, should their node be lost,
            moves together. The ranks are in the first, rank i in its bundle i.
        engine_seats: The group and the bundle of each engine.
        engine: What one engine takes of its bundle.
        rank: What one learner rank takes of its bundle.
        engine_threads: CPU only: threads of an engine, where they follow from the placement.
        rank_threads: Threads of a rank, where they follow from it.
    """

    placement: Placement
    groups: tuple[tuple[Resources, ...], ...]
    engine_seats: tuple[tuple[int, int], ...]
    engine: Resources
    rank: Resources
    engine_threads: int | None = None
    rank_threads: int | None = None

    @property
    def bundles(self) -> tuple[Resources, ...]:
        """Everything that is set aside, each on one node."""
        return tuple(bundle for group in self.groups for bundle in group)

    @property
    def device(self) -> Device:
        """What engines and ranks compute on."""
        return "cuda" if self.engine.get("GPU") else "cpu"

    @property
    def takes_turns(self) -> bool:
        """Whether an engine and a rank share a GPU."""
        return self.engine.get("GPU", 0) % 1 > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What has to be placed.

    Attributes:
        num_engines: Engines.
        tensor_parallel_size: GPUs that one engine spans.
        world_size: Learner ranks; none for an evaluation.
        engine_threads: CPU only: threads of an engine, where the user gave a number.
        rank_threads: CPU only: the same of a rank.
    """

    num_engines: int
    tensor_parallel_size: int = 1
    world_size: int
    engine_threads: int | None = None
    rank_threads: int | None = None

    @property
    def num_gpus(self) -> int:
        """GPUs they take when none is shared."""
        return self.num_engines * self.tensor_parallel_size + self.world_size

    def describe(self) -> str:
        """What the user asked for, by the names of the options."""
        return (
            f"rollout.num_engines={self.num_engines} x rollout.tensor_parallel_size="
            f"{self.tensor_parallel_size} and learner.world_size={self.world_size}"
        )


def plan_placement(
    wanted: Placement | None, parts: Parts, *, on_gpu: bool, nodes: Sequence[Resources]
) -> PlacementPlan:
    """Decide on a placement.

    Args:
        wanted: None takes `dedicated` where there are GPUs for it, and `colocated` elsewhere.
        parts: What has to be placed.
        on_gpu: Whether engines and ranks compute on GPUs.
        nodes: What each node of the cluster has in all.

    Raises:
        UserError: The parts cannot share GPUs, or there are too few GPUs or cores for them.

    Example:
        >>> parts = Parts(num_engines=1, world_size=1)
        >>> plan = plan_placement("dedicated", parts, on_gpu=False, nodes=[{"CPU": 2}])
        >>> plan.bundles
        ({'CPU': 1}, {'CPU': 1})
    """
    if on_gpu:
        return _plan_gpus(wanted, parts, nodes)
    if wanted == "dedicated":
        return _plan_cores(parts, nodes)
    _check_ranks_fit(parts, nodes)
    return _share(parts, {"CPU": NOMINAL_CPUS}, half={"CPU": 0.0})


def _plan_cores(parts: Parts, nodes: Sequence[Resources]) -> PlacementPlan:
    """Cores of their own for each: what was given, or an equal share of what there is."""
    share = int(_total("CPU", nodes)) // (parts.num_engines + parts.world_size)
    largest = int(max(node.get("CPU", 0) for node in nodes))
    threads = max(1, min(share, largest))
    engine, rank = parts.engine_threads or threads, parts.rank_threads or threads
    plan = _separate(parts, engine={"CPU": engine}, rank={"CPU": rank})
    return replace(plan, engine_threads=engine, rank_threads=rank)


def _check_ranks_fit(parts: Parts, nodes: Sequence[Resources]) -> None:
    """Ranks that set no cores aside are on one node, and each waits for all others at every sum.

    Raises:
        UserError: They have more threads than any node has cores.
    """
    threads = parts.rank_threads or 1
    cores = int(max(node.get("CPU", 0) for node in nodes))
    if parts.world_size * threads > max(cores, 1):
        raise UserError(
            f"learner.world_size={parts.world_size} ranks of learner.num_threads={threads} compute "
            f"at the same time on {parts.world_size * threads} cores, and "
            f"{'this machine' if len(nodes) == 1 else 'the largest node'} has {cores}. Lower one "
            "of the two; on a cluster, placement=dedicated spreads the ranks over its nodes."
        )


def _separate(parts: Parts, *, engine: Resources, rank: Resources) -> PlacementPlan:
    """A group for the ranks and one for each engine: a part that is lost waits for no other."""
    ranks = ((rank,) * parts.world_size,) if parts.world_size else ()
    return PlacementPlan(
        placement="dedicated",
        groups=ranks + ((engine,),) * parts.num_engines,
        engine_seats=tuple((len(ranks) + index, 0) for index in range(parts.num_engines)),
        engine=engine,
        rank=rank,
    )


def _share(parts: Parts, bundle: Resources, *, half: Resources) -> PlacementPlan:
    """One group, in whose bundles an engine and a rank sit together."""
    return PlacementPlan(
        placement="colocated",
        groups=((bundle,) * max(parts.num_engines, parts.world_size),),
        engine_seats=tuple((0, index) for index in range(parts.num_engines)),
        engine=half,
        rank=half,
    )


def _plan_gpus(wanted: Placement | None, parts: Parts, nodes: Sequence[Resources]) -> PlacementPlan:
    plan = _seat_on_gpus(wanted, parts, available=_total("GPU", nodes))
    return replace(plan, rank_threads=parts.rank_threads or _share_cores(parts, nodes))


def _share_cores(parts: Parts, nodes: Sequence[Resources]) -> int | None:
    """Threads of a rank on any node with GPUs; None where none has joined yet."""
    shares = [
        int(node.get("CPU", 0) // max(1, min(parts.world_size, node["GPU"])))
        for node in nodes
        if node.get("GPU")
    ]
    return max(1, min(shares)) if shares else None


def _seat_on_gpus(wanted: Placement | None, parts: Parts, *, available: float) -> PlacementPlan:
    together = max(parts.num_engines, parts.world_size)
    can_share = parts.tensor_parallel_size == 1 and parts.world_size > 0
    if wanted == "dedicated" or (wanted is None and available >= parts.num_gpus):
        return _separate(
            parts,
            engine={"CPU": NOMINAL_CPUS, "GPU": parts.tensor_parallel_size},
            rank={"CPU": NOMINAL_CPUS, "GPU": 1},
        )
    if can_share and (wanted == "colocated" or available >= together):
        return _share(parts, {"CPU": NOMINAL_CPUS, "GPU": 1}, half={"CPU": 0.0, "GPU": 0.5})
    if wanted == "colocated":
        raise UserError(
            f"placement=colocated puts one engine and one learner rank on a GPU, which "
            f"{parts.describe()} cannot do: set rollout.tensor_parallel_size=1, or "
            "placement=dedicated."
        )
    fewest = together if can_share else parts.num_gpus
    cure = "Lower one of them." if available else _NO_GPUS
    raise UserError(
        f"{parts.describe()} need {parts.num_gpus} GPUs, or {fewest} at least; there are "
        f"{available:.0f}. {cure}"
    )


def find_misfit(bundles: Sequence[Resources], nodes: Sequence[Resources]) -> str | None:
    """Why bundles can never fit onto nodes, if that is plain to see.

    Args:
        bundles: Each goes onto one node as a whole.
        nodes: What each node has in all.

    Returns:
        What is asked and what there is, or None.

    Example:
        >>> find_misfit([{"CPU": 4}], [{"CPU": 2}, {"CPU": 2}])
        'one part alone takes 4 CPU, and the largest node has 2'
    """
    for kind in ("GPU", "CPU"):
        most = max((bundle.get(kind, 0) for bundle in bundles), default=0)
        largest = max((node.get(kind, 0) for node in nodes), default=0)
        if most > largest:
            return f"one part alone takes {most:g} {kind}, and the largest node has {largest:g}"
        asked, there = _total(kind, bundles), _total(kind, nodes)
        if asked > there:
            return f"the parts take {asked:g} {kind}, and the cluster has {there:g}"
    return None


def describe_resources(several: Iterable[Resources]) -> str:
    """Bundles or nodes in words.

    Example:
        >>> describe_resources([{"CPU": 1}, {"CPU": 1}, {"GPU": 1, "CPU": 0.01}])
        '2 x {CPU: 1}, 1 x {GPU: 1}'
    """
    counts: dict[str, int] = {}
    for resources in several:
        held = {k: resources[k] for k in ("GPU", "CPU") if resources.get(k)}
        told = {k: v for k, v in held.items() if v > NOMINAL_CPUS} or held
        text = ", ".join(f"{kind}: {number:g}" for kind, number in told.items())
        counts[text] = counts.get(text, 0) + 1
    return ", ".join(f"{count} x {{{text}}}" for text, count in counts.items())


def describe_placement(plan: PlacementPlan, parts: Parts, nodes: Sequence[Resources]) -> str:
    """Where engines and ranks are, and which GPUs have nothing to do.

    Args:
        plan: Of the run.
        parts: What it places.
        nodes: What each node of the cluster has in all.

    Example:
        >>> parts = Parts(num_engines=1, world_size=1)
        >>> nodes = [{"GPU": 8, "CPU": 64}]
        >>> plan = plan_placement(None, parts, on_gpu=True, nodes=nodes)
        >>> describe_placement(plan, parts, nodes)
        'dedicated, 2 of 8 GPUs for 1 engine(s) and 1 rank(s); 6 idle: raise one of the two numbers'
    """
    used, there = _total("GPU", plan.bundles), _total("GPU", nodes)
    on = f"{used:g} of {there:g} GPUs" if used else "CPU"
    text = f"{plan.placement}, {on} for {parts.num_engines} engine(s)"
    if parts.world_size:
        text += f" and {parts.world_size} rank(s)"
    idle = there - used if used else 0
    return f"{text}; {idle:g} idle: raise one of the two numbers" if idle else text


def _total(kind: str, several: Iterable[Resources]) -> float:
    return sum(resources.get(kind, 0) for resources in several)
