"""What one rank does in tests/unit/grpo/test_parallel.py, which starts it with a global `task`.

Its `pipe` takes the answer, its `environment` says which rank of how many this is, and each of its
`jobs` is a learner: options, batches to learn from, folders to load from before and save to after.
"""

from __future__ import annotations

import os
import traceback
from typing import Any

from torch.distributed.tensor import DTensor


def run_job(*, options, batches, load=None, save=None):
    from grpo.learner.learner import Learner
    from grpo.learner.parallel import gather_tensor

    learner = Learner(options)
    if load is not None:
        learner.load(load)
    gradients: list[dict[str, Any]] = []
    take_step = learner.optimizer.step

    def spy() -> None:
        gradients.append(
            {
                name: gather_tensor(weight.grad).clone()
                for name, weight in learner.policy.named_parameters()
                if weight.grad is not None
            }
        )
        take_step()

    learner.optimizer.step = spy
    reports = [learner.update(batch) for batch in batches]
    if save is not None:
        learner.save(save)
    weights = {name: tensor.clone() for name, tensor in learner.named_weights()}
    return {
        "gradients": [{n: g.numpy() for n, g in found.items()} for found in gradients],
        "metrics": [dict(report.metrics) for report in reports],
        "weights": {name: tensor.numpy() for name, tensor in weights.items()},
        "held": sum(_count_held(weight) for weight in learner.policy.parameters()),
    }


def _count_held(weight) -> int:
    return (weight.to_local() if isinstance(weight, DTensor) else weight).numel()


task: dict[str, Any] = globals()["task"]
os.environ |= task["environment"]
try:
    task["pipe"].send(([run_job(**job) for job in task["jobs"]], None))
except BaseException:  # noqa: BLE001 - whatever it is, the test has to hear of it
    task["pipe"].send((None, traceback.format_exc()))
