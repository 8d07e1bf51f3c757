"""Samples and scores held-out problems with the policy that the engines serve."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grpo.collect import Collector
from grpo.evaluation.scores import EvaluationResult, score_set
from grpo.values import SamplingOptions, ScoredGroup
from verifiers.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluator:
    """Scores the policy on held-out sets.

    Attributes:
        collector: Samples and verifies.
        sets: Problems by the set's name.
        sampling: How completions are drawn.
        num_samples: Completions for each problem.
        ks: The k of pass@k.
        seed: The run's seed; the same problem gets the same seeds at every evaluation, so that two
            of them are paired.
        model: What is evaluated, for the record.
    """

    collector: Collector
    sets: Mapping[str, Sequence[Problem]]
    sampling: SamplingOptions
    num_samples: int
    ks: Sequence[int]
    seed: int
    model: str

    def evaluate(
        self, *, step: int, policy_version: int
    ) -> tuple[EvaluationResult, tuple[ScoredGroup, ...]]:
        """Score every set; all of them are sampled in one go.

        Args:
            step: Of training, for the record.
            policy_version: That the engines serve, for the record.
        """
        begun = time.perf_counter()
        problems = [problem for members in self.sets.values() for problem in members]
        groups = self.collector.collect(
            problems, self.sampling, group_size=self.num_samples, seed_parts=(self.seed, "evaluate")
        )
        scores, first = [], 0
        for name, members in self.sets.items():
            mine = groups[first : first + len(members)]
            first += len(members)
            scores.append(
                score_set(name, mine, num_samples=self.num_samples, ks=self.ks, seed=self.seed)
            )
        result = EvaluationResult(
            step=step,
            policy_version=policy_version,
            model=self.model,
            temperature=self.sampling.temperature,
            top_p=self.sampling.top_p,
            max_completion_length=self.sampling.max_completion_length,
            seed=self.seed,
            seconds=time.perf_counter() - begun,
            sets=tuple(scores),
        )
        return result, groups
