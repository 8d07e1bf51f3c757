"""What can go wrong in the sandbox through nobody's program."""

from __future__ import annotations

from enum import StrEnum


class Cause(StrEnum):
    """Why no program can be run here."""

    NO_ENGINE = "no_engine"
    PERMISSION = "permission"
    NO_IMAGE = "no_image"
    NO_RUNTIME = "no_runtime"
    NO_SPACE = "no_space"
    CANNOT_BUILD = "cannot_build"
    LIMIT_NOT_ENFORCED = "limit_not_enforced"
    START_FAILED = "start_failed"


class SandboxError(RuntimeError):
    """Something that is not a program's fault keeps programs from being run."""


class SandboxUnavailable(SandboxError):
    """No program can be run, and somebody has to do something about it.

    The message is one paragraph: what is missing, and the command that cures it.
    """

    def __init__(self, cause: Cause, message: str) -> None:
        super().__init__(message)
        self.cause = cause

    def __reduce__(self) -> tuple[type[SandboxUnavailable], tuple[Cause, str]]:
        return type(self), (self.cause, str(self))


class WorkerLost(SandboxError):
    """A container stopped answering in the middle of a job, or answered something else.

    Attributes:
        kind: `died` (it ended by itself), `killed` (somebody had the engine end it), `engine` (it
            could not be started, or went with the engine), `late` (no answer in time) or `protocol`
            (an answer that does not fit).
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class PoolFull(SandboxError):
    """More jobs were handed in at a time than the pool's queue holds."""


class BadTest(ValueError):
    """A test cannot be read; the message names the field."""
