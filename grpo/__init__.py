"""The trainer: configuration, loop, algorithms, rollouts, learner, evaluation, command line."""

__version__ = "0.1.0"
