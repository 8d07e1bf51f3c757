"""The trainer: configuration, loop, algorithms, rollouts, learner, evaluation, command line.

`train` and `evaluate` are the commands `verigrad train` and `verigrad eval` as functions.
"""

from grpo.api import evaluate, train

__all__ = ["evaluate", "train"]
__version__ = "0.1.0"
