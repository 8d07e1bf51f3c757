"""What one program may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# Address space beyond the memory limit: libraries map far more than they touch.
ADDRESS_SPACE_SLACK_MB = 384


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one run of a program on one input, or of one call of a function.

    Attributes:
        cpu_s: CPU seconds; what a verdict of TLE normally rests on.
        wall_s: Wall seconds, for programs that sleep; None is the larger of 3 times `cpu_s` and
            `cpu_s` + 4.
        memory_mb: Memory of all its processes together.
        stdout_kb: Output, and also returned values.
        stderr_kb: How much of the error output is kept; more is no fault.
        processes: Processes and threads.

    Example:
        >>> Limits(cpu_s=2.0).wall
        6.0
    """

    cpu_s: float = 4.0
    wall_s: float | None = None
    memory_mb: int = 256
    stdout_kb: int = 1024
    stderr_kb: int = 16
    processes: int = 16

    def __post_init__(self) -> None:
        for name in ("cpu_s", "memory_mb", "stdout_kb", "stderr_kb", "processes"):
            if getattr(self, name) <= 0:
                raise ValueError(f"limits.{name} must be positive, not {getattr(self, name)}")
        if self.wall_s is not None and self.wall_s < self.cpu_s:
            raise ValueError(
                f"limits.wall_s ({self.wall_s}) must not be below cpu_s ({self.cpu_s})"
            )

    @property
    def wall(self) -> float:
        """The wall limit that applies, in seconds."""
        return max(3 * self.cpu_s, self.cpu_s + 4) if self.wall_s is None else self.wall_s

    def as_json(self) -> dict[str, Any]:
        """The form that the supervisor in the container reads."""
        return {
            "cpu_s": self.cpu_s,
            "wall_s": self.wall,
            "stdout_bytes": self.stdout_kb * 1024,
            "stderr_bytes": self.stderr_kb * 1024,
            "report_bytes": self.stdout_kb * 1024,
            "memory_bytes": self.memory_mb << 20,
            "address_space_bytes": (self.memory_mb + ADDRESS_SPACE_SLACK_MB) << 20,
            "processes": self.processes,
        }
