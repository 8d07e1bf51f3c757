"""How the sandbox of one machine is set up."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from sandbox.image import DEFAULT_IMAGE
from sandbox.limits import Limits

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
        image: What programs run in: any image that has `python3` (3.11 or newer) on its path.
        runtime: Container runtime that the engine has registered; None is its default.
        pool_size: Programs that run at the same time; by default one for each core, at most 8.
        spares: Containers that stand by, to take over from one that is retired.
        limits: What a program may use at most; a job may ask for less time, not for more memory.
        preload: Modules that are loaded ahead; those that the image lacks are left out.
        preload_heavy: As `preload`, but only for programs that name one of them.
        max_runs_per_container: Age of a container in runs at which it is retired.
        max_container_age_s: The same in seconds.
        engine_wait_s: How long a job waits for a container while the engine is away.
    """

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

    def __post_init__(self) -> None:
        if self.pool_size < 1:
            raise ValueError(f"pool_size must be at least 1, not {self.pool_size}")
        if self.spares < 0 or self.max_runs_per_container < 1:
            raise ValueError("spares must not be negative, and max_runs_per_container at least 1")
