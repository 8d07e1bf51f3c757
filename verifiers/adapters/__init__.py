"""Other trainers' reward functions as verifiers here, and verifiers here as theirs."""

from verifiers.adapters.rubrics import as_rubric_function
from verifiers.adapters.trl import as_trl_reward
from verifiers.adapters.verl import as_verl_batch_scores, as_verl_compute_score

__all__ = [
    "as_rubric_function",
    "as_trl_reward",
    "as_verl_batch_scores",
    "as_verl_compute_score",
]
