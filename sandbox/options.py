"""How the sandbox of one machine is set up."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Literal, get_args

from sandbox.image import DEFAULT_IMAGE
from sandbox.limits import Limits

Backend = Literal["docker", "bubblewrap", "subprocess"]
Isolation = Literal["uid", "namespace", "container_per_candidate"]

MAX_DEFAULT_SIZE = 8
# Loaded once a container, so that no program pays for its import.
DEFAULT_PRELOAD = (
    "bisect", "collections", "copy", "datetime", "decimal", "fractions", "functools",
    "heapq", "itertools", "math", "operator", "random", "re", "statistics", "string", "typing",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxOptions:
    """Settings of a `SandboxPool`.

    Attributes:
        backend: What keeps programs from the machine. All but `docker` need `allow_unsafe_backend`.
        allow_unsafe_backend: Take a backend that hostile programs can break out of.
        isolation: What keeps programs from each other. `uid`: each is a process of a user of its
            own, in a container that has run others. `namespace`: that, and it has its own view of
            processes, mounts and IPC, which costs half as much again and needs an engine without
            AppArmor. `container_per_candidate`: each job has a container of its own that holds no
            capability, not even inside; half a second for each.
        image: What programs run in: any image that has `python3` (3.11 or newer) on its path.
        runtime: Container runtime that the engine has registered; None is its default.
        pool_size: Programs that run at the same time; by default one for each core, at most 8.
        spares: Containers that stand by, to take over from one that is retired.
        limits: What a program may use at most; a job may ask for less time, not for more memory.
        preload: Modules that are loaded ahead; those that the image lacks are left out.
        preload_heavy: As `preload`, but only for programs that name one of them.
        max_runs_per_container: Age of a container in runs at which it is retired.
        max_container_age_s: The same in seconds.
        engine_wait_s: How long jobs wait for the engine when it goes away; later ones are refused
            until it is back.
        max_waiting: Jobs that may wait for a container; one more is an error.
        for_tests: Whether its containers run test code, and never a program under test.
    """

    backend: Backend = "docker"
    allow_unsafe_backend: bool = False
    isolation: Isolation = "uid"
    image: str = DEFAULT_IMAGE
    runtime: str | None = None
    pool_size: int = field(default_factory=lambda: min(os.cpu_count() or 1, MAX_DEFAULT_SIZE))
    spares: int = 1
    limits: Limits = field(default_factory=Limits)
    preload: tuple[str, ...] = DEFAULT_PRELOAD
    preload_heavy: tuple[str, ...] = ("numpy",)
    max_runs_per_container: int = 200
    max_container_age_s: float = 900.0
    engine_wait_s: float = 60.0
    max_waiting: int = 1024
    for_tests: bool = False

    def __post_init__(self) -> None:
        for name, known in (("backend", get_args(Backend)), ("isolation", get_args(Isolation))):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name} is one of {', '.join(known)}, not {getattr(self, name)!r}"
                )
        if self.backend != "docker" and not self.allow_unsafe_backend:
            raise ValueError(
                f"the backend {self.backend} does not hold hostile programs; set "
                "allow_unsafe_backend: true to use it all the same, or use docker"
            )
        if self.backend != "docker" and (self.isolation != "uid" or self.runtime is not None):
            raise ValueError("isolation and runtime are options of the backend docker only")
        if self.pool_size < 1:
            raise ValueError(f"pool_size must be at least 1, not {self.pool_size}")
        if self.spares < 0 or self.max_runs_per_container < 1:
            raise ValueError("spares must not be negative, and max_runs_per_container at least 1")

    @property
    def stock(self) -> int:
        """Containers that run or stand by: one for one, where each job uses one up."""
        if self.isolation == "container_per_candidate":
            return 2 * self.pool_size
        return self.pool_size + self.spares
