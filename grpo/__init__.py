"""The trainer: configuration, loop, algorithms, rollouts, learner, evaluation, command line.

`train` and `evaluate` are the commands `verigrad train` and `verigrad eval` as functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grpo.api import evaluate, train

__all__ = ["evaluate", "train"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Not at the import of the package: the command line first sees to it that `verifiers` is ours.
    if name in __all__:
        from grpo import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
