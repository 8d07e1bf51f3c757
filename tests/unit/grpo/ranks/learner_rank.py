"""What one rank does in tests/unit/grpo/test_parallel.py, which starts it with a global `task`.

Its `pipe` takes the answer, its `environment` says which rank of how many this is, and each of its
`jobs` is a learner: options, batches to learn from, folders to load from before and save to after,
and probes, each a token budget and a batch to take the gradient of.
"""

from __future__ import annotations

import os
import traceback
from dataclasses import replace
from typing import Any

from grpo.learner.planning import Planner
from grpo.learner.shards import gather_tensor, own_part


def run_job(*, options, batches, probes=(), load=None, save=None, ahead=0):
    from grpo.learner.learner import Learner
    from grpo.learner.reference import PolicyCopy

    learner = Learner(options)
    if load is not None:
        learner.state.load(load)
    metrics = []
    for batch in batches:
        if ahead:
            learner.learn_ahead(batch.step, batch.samples[:ahead])
        metrics.append(dict(learner.update(batch).metrics))
    if save is not None:
        learner.state.begin_save(save)
        learner.state.finish_save()
    reference = learner.reference
    return {
        "metrics": metrics,
        "weights": {name: tensor.numpy() for name, tensor in learner.named_weights()},
        "held": _count_held(learner.policy),
        "held_reference": _count_held(reference.policy)
        if isinstance(reference, PolicyCopy)
        else None,
        "gradients": [_find_gradient(learner, *probe) for probe in probes],
    }


def _find_gradient(learner, budget, batch) -> dict[str, Any]:
    """The gradient that an update under this token budget would follow; the weights stay."""
    found: dict[str, Any] = {}

    def take_down() -> None:
        for name, weight in learner.policy.named_parameters():
            found[name] = gather_tensor(weight.grad).numpy().copy()

    learner.planner = Planner(
        replace(learner.options, max_tokens_per_microbatch=budget),
        rank=learner.planner.rank,
        world_size=learner.accelerator.num_processes,
    )
    learner.optimizer.step = take_down
    learner.update(batch)
    return found


def _count_held(module) -> int:
    return sum(own_part(weight).numel() for weight in module.parameters())


task: dict[str, Any] = globals()["task"]
os.environ |= task["environment"]
try:
    task["pipe"].send(([run_job(**job) for job in task["jobs"]], None))
except BaseException:  # noqa: BLE001 - whatever it is, the test has to hear of it
    task["pipe"].send((None, traceback.format_exc()))
