"""What can go wrong with the learner's processes, by name."""

from __future__ import annotations


class LearnerError(RuntimeError):
    """The learner cannot go on; the message names the rank and the cause is chained."""


class LearnerLost(LearnerError):
    """The ranks are gone or hang: started anew from the last checkpoint, they can go on.

    Attributes:
        stack: Where the ranks stood, where they could still be asked.
    """

    def __init__(self, message: str, stack: str | None = None) -> None:
        super().__init__(message)
        self.stack = stack


class LearnerDied(LearnerLost):
    """The process of a rank is gone (killed, out of memory, crashed)."""


class LearnerFailed(LearnerError):
    """A rank raised something that is no one's fault by name."""


class LearnerStalled(LearnerLost):
    """The ranks got nothing done in the time they have."""
