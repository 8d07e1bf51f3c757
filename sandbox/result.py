"""Jobs for the sandbox, and what comes back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

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
    BAD_TEST = "bad_test"
    """Not the machine: the test itself is at fault."""


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


class Dialogue(Protocol):
    """A running program that is spoken to; `sandbox.dialogue.WorkerDialogue` is one."""

    def say(self, message: str) -> None:
        """Send it a message, which is JSON."""
        ...

    def hear(self) -> tuple[str, str] | None:
        """Wait for its next message: a tag and a text; None once it has ended."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A program, and what to do with it: exactly one of `inputs`, `calls` and `converse`.

    Attributes:
        program: Python source.
        inputs: One run for each, with these bytes on stdin.
        calls: All made in one process, in order; a call that takes the process down costs only
            itself, unless `stop_early` is set.
        limits: Of each run, or call.
        converse: Speaks with the program while it runs, and returns at its end, or when it has
            heard enough; what it returns, if anything, is why the run says nothing.
        test: Test code to be run instead of a program, as `sandbox.container.tester.run` takes it.
        files: What the program finds under the paths in its `sys.argv[1:]`.
        stop_early: Leave out what follows the first run that does not end well.
        repeatable: Whether the job may be made again after trouble with the machine.
    """

    program: str
    inputs: tuple[bytes, ...] = ()
    calls: tuple[Call, ...] = ()
    converse: Callable[[Dialogue], InfraCause | None] | None = None
    test: Mapping[str, Any] | None = None
    files: tuple[bytes, ...] = ()
    limits: Limits = field(default_factory=Limits)
    stop_early: bool = False
    repeatable: bool = True

    def __post_init__(self) -> None:
        if bool(self.inputs) + bool(self.calls) + (self.converse is not None) != 1:
            raise ValueError("a job has either inputs or calls or something to converse about")

    @property
    def num_runs(self) -> int:
        """Results to expect, fewer when stopped early."""
        return len(self.inputs) + len(self.calls) + (self.converse is not None)


class Runs(Protocol):
    """What runs jobs; `sandbox.pool.SandboxPool` is one."""

    def run(self, job: Job) -> tuple[ExecResult, ...]:
        """One result for each run, fewer when the job stopped early."""
        ...


def infra_result(cause: InfraCause, detail: str) -> ExecResult:
    """The result of a run that could not be made."""
    return ExecResult(status=ExecStatus.IE, infra=cause, detail=detail)
