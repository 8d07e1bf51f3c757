"""Jobs for the sandbox, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sandbox.limits import Limits


class ExecStatus(StrEnum):
    """How one run ended. `IE` is the machine's doing and says nothing about the program."""

    OK = "OK"
    RE = "RE"
    TLE = "TLE"
    MLE = "MLE"
    OLE = "OLE"
    CE = "CE"
    IE = "IE"


class Flag(StrEnum):
    """What else was noticed; a run keeps its verdict."""

    SV = "SV"
    """It left processes behind, or took its container down."""


class InfraCause(StrEnum):
    """Why a run says nothing about its program."""

    STALLED = "stalled"
    LOST = "lost"
    UNAVAILABLE = "unavailable"
    HARNESS = "harness"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """One run of a program on one input, or one call of a function.

    Attributes:
        status: How it ended.
        stdout: What it wrote, up to the limit.
        stderr: The beginning of what it wrote there, as text.
        value: What the function returned (calls only); exact built-in types, or `Opaque`.
        cpu_s: CPU seconds; a call's is its share of its process.
        wall_s: Wall seconds, likewise.
        memory_mb: Peak resident memory of its process, the preloaded libraries included.
        exit_code: Of its process; negative is a signal.
        flags: What else was noticed.
        detail: For a person: the compiler's message, the exception, the limit that was hit.
        infra: Why there is no verdict; exactly when `status` is IE.
        killed: Whether the sandbox had to end it, or it died of a signal.
    """

    status: ExecStatus
    stdout: bytes = b""
    stderr: str = ""
    value: Any = None
    cpu_s: float = 0.0
    wall_s: float = 0.0
    memory_mb: float = 0.0
    exit_code: int = 0
    flags: frozenset[Flag] = frozenset()
    detail: str = ""
    infra: InfraCause | None = None
    killed: bool = False

    def __post_init__(self) -> None:
        assert (self.infra is not None) == (self.status is ExecStatus.IE), (self.status, self.infra)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a function that the program defines; values may be of any built-in type.

    Example:
        >>> Call(function="add", arguments=(1, 2)).arguments
        (1, 2)
    """

    function: str
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A program, and what to do with it: exactly one of `inputs` and `calls`.

    Attributes:
        program: Python source.
        inputs: One run for each, with these bytes on stdin.
        calls: All made in one process, in order; a call that takes the process down costs only
            itself, unless `stop_early` is set.
        limits: Of each run, or call.
        stop_early: Leave out what follows the first run that does not end well.
    """

    program: str
    inputs: tuple[bytes, ...] = ()
    calls: tuple[Call, ...] = ()
    limits: Limits = field(default_factory=Limits)
    stop_early: bool = False

    def __post_init__(self) -> None:
        if bool(self.inputs) == bool(self.calls):
            raise ValueError("a job has either inputs or calls")

    @property
    def num_runs(self) -> int:
        """Results to expect, fewer when stopped early."""
        return len(self.inputs) + len(self.calls)


def infra_result(cause: InfraCause, detail: str) -> ExecResult:
    """The result of a run that could not be made."""
    return ExecResult(status=ExecStatus.IE, infra=cause, detail=detail)
