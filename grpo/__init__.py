"""The trainer: configuration, loop, algorithms, rollout pool, learner, evaluation and command line."""

__version__ = "0.1.0"
