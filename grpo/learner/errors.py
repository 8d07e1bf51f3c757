"""What can go wrong with the learner's processes, by name."""

from __future__ import annotations


class LearnerError(RuntimeError):
    """The learner cannot go on; the message names the rank and the cause is chained."""


class LearnerDied(LearnerError):
    """The process of a rank is gone (killed, out of memory, crashed)."""


class LearnerFailed(LearnerError):
    """A rank raised something that is no one's fault by name."""


class LearnerStalled(LearnerError):
    """The ranks did not finish in the time they have."""
